/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/macros.h"
#include "daemon/stored-tree.h"

/* Levels of directories that are followed down; our own trees have three. */
#define REMOVE_DEPTH_MAX 64U

static int open_beneath(int root_fd, const char *path, int flags) {
        struct open_how how = {
                .flags = (uint64_t) (flags|O_CLOEXEC),
                .resolve = RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS|RESOLVE_NO_XDEV,
        };
        long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
        return fd < 0 ? -errno : (int) fd;
}

/* The directory that path lies in, and its last component (points into path). */
static int open_parent(int root_fd, char *path, int *ret_fd, const char **ret_name) {
        char *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;

        if (!*name || streq(name, ".") || streq(name, ".."))
                return -EINVAL;
        if (slash)
                *slash = 0;
        int fd = open_beneath(root_fd, slash ? path : ".", O_RDONLY|O_DIRECTORY);
        if (fd < 0)
                return fd;
        *ret_fd = fd;
        *ret_name = name;
        return 0;
}

/* An explicit stack in place of recursion: the depth of a tree is input. */
typedef struct RemoveStack {
        DIR *dir[REMOVE_DEPTH_MAX];
        char name[REMOVE_DEPTH_MAX][256];
        size_t n;
} RemoveStack;

static void remove_stack_done(RemoveStack *k) {
        while (k->n > 0)
                closedir(k->dir[--k->n]);
}

static int push_directory(RemoveStack *k, int parent_fd, const char *name) {
        if (k->n == REMOVE_DEPTH_MAX || strlen(name) >= sizeof(k->name[0]))
                return -ELOOP;
        _cleanup_close_ int fd = openat(parent_fd, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        DIR *d = fdopendir(fd);
        if (!d)
                return -errno;
        (void) TAKE_FD(fd);
        memcpy(k->name[k->n], name, strlen(name) + 1);
        k->dir[k->n++] = d;
        return 0;
}

static int remove_one(RemoveStack *k, int parent_fd, const char *name) {
        if (unlinkat(parent_fd, name, 0) >= 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        return push_directory(k, parent_fd, name);
}

static int remove_all(int parent_fd, const char *name) {
        _cleanup_(remove_stack_done) RemoveStack k = {};

        int r = remove_one(&k, parent_fd, name);
        while (r >= 0 && k.n > 0) {
                DIR *d = k.dir[k.n - 1];
                errno = 0;
                struct dirent *e = readdir(d);
                if (e && (streq(e->d_name, ".") || streq(e->d_name, "..")))
                        continue;
                if (e)
                        r = remove_one(&k, dirfd(d), e->d_name);
                else if (errno)
                        r = -errno;
                else {
                        closedir(d);
                        k.n--;
                        int fd = k.n > 0 ? dirfd(k.dir[k.n - 1]) : parent_fd;
                        if (unlinkat(fd, k.name[k.n], AT_REMOVEDIR) < 0 && errno != ENOENT)
                                r = -errno;
                }
        }
        return r;
}

int tree_remove(int root_fd, char *path) {
        _cleanup_close_ int dir = -EBADF;
        const char *name;

        int r = open_parent(root_fd, path, &dir, &name);
        if (r == -ENOENT)
                return 0;
        return r < 0 ? r : remove_all(dir, name);
}

/* A place in a directory. */
typedef struct Place {
        int dir;
        const char *name;
} Place;

static bool is_file(const Place *p) {
        struct stat st;

        return fstatat(p->dir, p->name, &st, AT_SYMLINK_NOFOLLOW) >= 0 && S_ISREG(st.st_mode);
}

/* 1: what was at the target is in the other's place now, for the way back. Not every file system can do that. */
static int move(const Place *from, const Place *to) {
        if (is_file(to) && renameat2(from->dir, from->name, to->dir, to->name, RENAME_EXCHANGE) >= 0)
                return 1;
        return renameat(from->dir, from->name, to->dir, to->name) < 0 ? -errno : 0;
}

static int rename_place(const Place *from, const Place *to) {
        bool existed = is_file(to);

        int r = move(from, to);
        if (r < 0)
                return r;
        bool exchanged = r > 0;
        r = fsync(to->dir) < 0 || fsync(from->dir) < 0 ? -errno : 0;
        if (r < 0 && (exchanged || !existed))
                (void) renameat2(to->dir, to->name, from->dir, from->name, exchanged ? RENAME_EXCHANGE : RENAME_NOREPLACE);
        else if (r >= 0 && exchanged)
                (void) unlinkat(from->dir, from->name, 0);
        return r;
}

int tree_rename(int root_fd, char *from, char *to) {
        _cleanup_close_ int from_dir = -EBADF, to_dir = -EBADF;
        const char *from_name, *to_name;

        int r = open_parent(root_fd, from, &from_dir, &from_name);
        if (r >= 0)
                r = open_parent(root_fd, to, &to_dir, &to_name);
        return r < 0 ? r : rename_place(&(Place) { from_dir, from_name }, &(Place) { to_dir, to_name });
}
