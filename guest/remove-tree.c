/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/stat.h>

#include "guest/files.h"
#include "guest/remove-tree.h"

void tree_removal_done(TreeRemoval *x) {
        if (x->here)
                closedir(x->here);
        for (size_t i = 0; i < x->n_levels; i++)
                free(x->levels[i].name);
        free(x->levels);
        free(x->path);
        *x = (TreeRemoval) {};
}

static int removal_set_here(TreeRemoval *x, int fd) {
        DIR *d = fdopendir(fd);
        if (!d) {
                int r = -errno;
                safe_close(fd);
                return r;
        }
        if (x->here)
                closedir(x->here);
        x->here = d;
        return 0;
}

static int open_directory(int dirfd, const char *name) {
        int fd = openat(dirfd, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static int removal_descend(TreeRemoval *x, int parent, const char *name) {
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        if (fstat(parent, &st) < 0)
                return -errno;
        fd = open_directory(parent, name);
        if (fd < 0)
                return fd;

        if (x->n_levels == x->allocated) {
                RemovalLevel *p = reallocarray(x->levels, x->allocated * 2 + 16, sizeof(RemovalLevel));
                if (!p)
                        return -ENOMEM;
                x->levels = p;
                x->allocated = x->allocated * 2 + 16;
        }
        char *copy = strdup(name);
        if (!copy)
                return -ENOMEM;
        x->levels[x->n_levels++] = (RemovalLevel) { .dev = st.st_dev, .ino = st.st_ino, .name = copy };
        return removal_set_here(x, TAKE_FD(fd));
}

/* Leaves the present directory, which is empty, and removes it. */
static int removal_ascend(TreeRemoval *x) {
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        RemovalLevel *l = &x->levels[--x->n_levels];
        _cleanup_free_ char *name = TAKE_PTR(l->name);

        fd = open_directory(dirfd(x->here), "..");
        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (st.st_dev != l->dev || st.st_ino != l->ino)
                return -ESTALE; /* moved elsewhere while we were in it */
        if (unlinkat(fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                return -errno;
        return x->n_levels > 0 ? removal_set_here(x, TAKE_FD(fd)) : 0;
}

int tree_removal_next(TreeRemoval *x) {
        struct dirent *de;

        errno = 0;
        de = readdir(x->here);
        if (!de) {
                int r = errno != 0 ? -errno : removal_ascend(x);
                return r < 0 ? r : x->n_levels > 0;
        }
        if (streq(de->d_name, ".") || streq(de->d_name, ".."))
                return 1;

        if (unlinkat(dirfd(x->here), de->d_name, 0) >= 0 || errno == ENOENT)
                return 1;
        if (errno != EISDIR && errno != EPERM)
                return -errno;

        int saved = errno, r = removal_descend(x, dirfd(x->here), de->d_name);
        return r == -ENOTDIR || r == -ELOOP ? -saved : r < 0 ? r : 1;
}

static void strip_slashes(char *path) {
        for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
                path[n - 1] = 0;
}

int tree_removal_begin(TreeRemoval *x, bool recursive) {
        _cleanup_close_ int parent = -EBADF;

        strip_slashes(x->path);
        const char *name = file_base_name(x->path);
        if (*name == '/' || streq(name, ".") || streq(name, ".."))
                return -EINVAL;

        *strrchr(x->path, '/') = 0;
        parent = open(*x->path ? x->path : "/", O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        int r = parent < 0 ? -errno : 0;
        x->path[strlen(x->path)] = '/';
        if (r < 0)
                return r;

        if (unlinkat(parent, name, 0) >= 0)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        if (!recursive)
                return unlinkat(parent, name, AT_REMOVEDIR) < 0 ? -errno : 0;

        r = removal_descend(x, parent, name);
        if (r < 0)
                return r == -ENOTDIR || r == -ELOOP ? -EPERM : r;
        return 1;
}
