/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "guest/files.h"
#include "guest/new-file.h"

#define DIRECT_FLAGS (O_WRONLY|O_TRUNC|O_CLOEXEC|O_NONBLOCK|O_NOCTTY)

/* Where the path leads once all links are followed. */
static int real_path(int fd, char ret[static PATH_MAX]) {
        char link[64];

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, ret, PATH_MAX - 1);
        if (n < 0)
                return -errno;
        ret[n] = 0;
        return *ret == '/' ? 0 : -ENOENT;
}

static int open_temporary(NewFile *f, const char *path) {
        _cleanup_free_ char *directory = strdup(path);
        unsigned random;

        if (!directory)
                return -ENOMEM;
        const char *name = file_base_name(path);
        f->name = strdup(name);
        if (!f->name)
                return -ENOMEM;
        directory[MAX(name - path - 1, 1)] = 0;

        f->directory_fd = open(directory, O_PATH|O_DIRECTORY|O_CLOEXEC);
        if (f->directory_fd < 0)
                return -errno;

        for (unsigned i = 0; i < 16; i++) {
                free(TAKE_PTR(f->temporary));
                if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
                        random = (unsigned) getpid() + i;
                if (asprintf(&f->temporary, ".cube-write-%08x", random) < 0) {
                        f->temporary = NULL;
                        return -ENOMEM;
                }
                f->fd = openat(f->directory_fd, f->temporary, O_WRONLY|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0600);
                if (f->fd >= 0 || errno != EEXIST)
                        break;
        }
        return f->fd < 0 ? -errno : 0;
}

static int open_direct(NewFile *f, const char *path, mode_t create_mode) {
        new_file_done(f);
        f->fd = open(path, DIRECT_FLAGS|(create_mode ? O_CREAT : 0), create_mode);
        return f->fd < 0 ? -errno : 0;
}

/* What can't be opened beside the target for these reasons may still take a write in place. */
static bool worth_direct(int r) {
        return r == -EACCES || r == -EPERM || r == -ENOENT || r == -EOPNOTSUPP;
}

static int open_existing(NewFile *f, const char *path, const struct stat *st, int path_fd) {
        char real[PATH_MAX];

        if (S_ISDIR(st->st_mode))
                return -EISDIR;
        if (!S_ISREG(st->st_mode))
                return open_direct(f, path, 0);

        int r = real_path(path_fd, real);
        if (r >= 0)
                r = open_temporary(f, real);
        return r < 0 && worth_direct(r) ? open_direct(f, path, 0) : r;
}

static int open_new(NewFile *f, const char *path, mode_t mode) {
        struct stat st;

        if (path[strlen(path) - 1] == '/')
                return -EISDIR;
        /* A link to what does not exist yet: the file is made where it points. */
        if (lstat(path, &st) >= 0)
                return open_direct(f, path, mode);
        return open_temporary(f, path);
}

static int open_as(NewFile *f, const char *path, mode_t mode, bool keep_owner) {
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        f->mode = mode != (mode_t) -1 ? mode & 07777 : 0644;
        f->set_mode = mode != (mode_t) -1;

        fd = open(path, O_PATH|O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? open_new(f, path, f->mode) : -errno;
        if (fstat(fd, &st) < 0)
                return -errno;

        if (!f->set_mode)
                f->mode = st.st_mode & 07777;
        if (keep_owner) {
                f->uid = st.st_uid;
                f->gid = st.st_gid;
        }
        return open_existing(f, path, &st, fd);
}

int new_file_open(NewFile *ret, const char *path, mode_t mode, bool keep_owner, const User *user) {
        *ret = (NewFile) { .fd = -EBADF, .directory_fd = -EBADF, .uid = (uid_t) -1, .gid = (gid_t) -1 };

        int r = identity_enter(user);
        if (r < 0)
                return r;
        r = open_as(ret, path, mode, keep_owner);
        identity_leave();

        if (r < 0)
                new_file_done(ret);
        return r;
}

static int put_in_place(NewFile *f) {
        if (f->directory_fd < 0)
                return f->set_mode && fchmod(f->fd, f->mode) < 0 && errno != EPERM ? -errno : 0;

        /* Changing the owner takes set-user-id bits away, so it comes first. */
        if (f->uid != (uid_t) -1 && fchown(f->fd, f->uid, f->gid) < 0)
                return -errno;
        if (fchmod(f->fd, f->mode) < 0)
                return -errno;
        if (renameat(f->directory_fd, f->temporary, f->directory_fd, f->name) < 0)
                return -errno;
        free(TAKE_PTR(f->temporary));
        return 0;
}

int new_file_finish(NewFile *f, const User *user) {
        int r = identity_enter(user);
        if (r < 0)
                return r;
        r = put_in_place(f);
        identity_leave();
        return r;
}

void new_file_done(NewFile *f) {
        if (f->temporary && f->fd >= 0)
                (void) unlinkat(f->directory_fd, f->temporary, 0);
        f->fd = safe_close(f->fd);
        f->directory_fd = safe_close(f->directory_fd);
        free(TAKE_PTR(f->temporary));
        free(TAKE_PTR(f->name));
}
