/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/parse.h"
#include "daemon/image/each-entry.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/objects.h"

static const char *const file_names[_TEMPLATE_FILE_MAX] = TEMPLATE_FILE_NAMES;
static const char *const directories[_TEMPLATE_FILE_MAX] = STORE_OBJECT_DIRECTORIES;

int store_lock(int store_fd, int *ret_fd) {
        /* Opened anew: a lock is one of the open file, which we have in common with others. */
        _cleanup_close_ int fd = openat(store_fd, ".", O_RDONLY|O_DIRECTORY|O_CLOEXEC);

        if (fd < 0)
                return -errno;
        while (flock(fd, LOCK_EX) < 0)
                if (errno != EINTR)
                        return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

const char *object_directory(TemplateFile file) {
        return directories[file];
}

static int open_directory(int store_fd, const char *name, int *ret_fd) {
        if (mkdirat(store_fd, name, 0755) < 0 && errno != EEXIST)
                return -errno;
        int fd = openat(store_fd, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

static bool same_file(int dir_fd, const char *name, const struct stat *st) {
        struct stat now;

        return fstatat(dir_fd, name, &now, AT_SYMLINK_NOFOLLOW) >= 0 && now.st_dev == st->st_dev && now.st_ino == st->st_ino;
}

/* 1: it is there and holds what its name says, *ret is which one. One that does not is taken away. */
static int check_object(int store_fd, int objects_fd, const char *sum, struct stat *ret) {
        _cleanup_close_ int fd = openat(objects_fd, sum, O_RDONLY|O_NOFOLLOW|O_NONBLOCK|O_CLOEXEC), lock = -EBADF;
        char is[SHA256_HEX_SIZE];

        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        if (fstat(fd, ret) < 0)
                return -errno;
        /* Nor what can't be read, as on a disk that fails: no build would ever come to the same again. */
        int r = S_ISREG(ret->st_mode) ? hash_file(fd, is) : -EINVAL;
        if (r >= 0 && streq(is, sum))
                return 1;
        r = store_lock(store_fd, &lock);
        if (r >= 0 && same_file(objects_fd, sum, ret) && unlinkat(objects_fd, sum, 0) < 0 && errno != ENOENT)
                r = -errno;
        return r < 0 ? r : 0;
}

/* In place of what the directory has by that name, if it has anything. */
static int link_object(int store_fd, int objects_fd, const char *sum, int dir_fd, const char *name, const struct stat *st) {
        _cleanup_close_ int lock = -EBADF;
        const char *aside = ".shared";

        int r = store_lock(store_fd, &lock);
        if (r < 0)
                return r;
        /* Not the one that was looked at, or gone. */
        if (!same_file(objects_fd, sum, st))
                return -ENOENT;
        if (linkat(objects_fd, sum, dir_fd, aside, 0) < 0)
                return errno == EMLINK ? -ENOENT : -errno;
        if (renameat(dir_fd, aside, dir_fd, name) < 0)
                return -errno;
        /* Between two names of one file, as a template on another one has it, that does nothing. */
        return unlinkat(dir_fd, aside, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int object_share(int store_fd, int dir_fd, TemplateFile file, const char *sum) {
        _cleanup_close_ int objects_fd = -EBADF, lock = -EBADF;
        struct stat st;

        int r = open_directory(store_fd, directories[file], &objects_fd);
        if (r >= 0)
                r = check_object(store_fd, objects_fd, sum, &st);
        if (r > 0) {
                r = link_object(store_fd, objects_fd, sum, dir_fd, file_names[file], &st);
                /* Removed in this moment: then ours is the one. With too many links the template keeps its own. */
                if (r != -ENOENT)
                        return r;
        }
        if (r >= 0 || r == -ENOENT)
                r = store_lock(store_fd, &lock);
        if (r < 0)
                return r;
        if (linkat(dir_fd, file_names[file], objects_fd, sum, 0) < 0)
                /* Another one was quicker. */
                return errno == EEXIST || errno == EMLINK ? 0 : -errno;
        return fsync(objects_fd) < 0 ? -errno : 0;
}

int object_take(int store_fd, int dir_fd, TemplateFile file, const char *sum) {
        _cleanup_close_ int objects_fd = -EBADF;
        struct stat st;

        int r = open_directory(store_fd, directories[file], &objects_fd);
        if (r >= 0)
                r = check_object(store_fd, objects_fd, sum, &st);
        if (r <= 0)
                return r < 0 ? r : -ENOENT;
        return link_object(store_fd, objects_fd, sum, dir_fd, file_names[file], &st);
}

int input_set(int store_fd, const char *key, const char *sum) {
        _cleanup_close_ int inputs_fd = -EBADF, lock = -EBADF;
        char aside[SHA256_HEX_SIZE + 1];

        (void) snprintf(aside, sizeof(aside), ".%s", key);
        int r = open_directory(store_fd, STORE_INPUTS, &inputs_fd);
        if (r >= 0)
                r = store_lock(store_fd, &lock);
        if (r < 0)
                return r;
        if (unlinkat(inputs_fd, aside, 0) < 0 && errno != ENOENT)
                return -errno;
        return symlinkat(sum, inputs_fd, aside) < 0 || renameat(inputs_fd, aside, inputs_fd, key) < 0 ? -errno : 0;
}

bool object_unused(const struct stat *st) {
        return st->st_nlink <= 1;
}

static int sweep_object(int dir_fd, const char *name, void *userdata) {
        struct stat st;

        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        return object_unused(&st) && unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* Of an object that is gone. */
static int sweep_input(int dir_fd, const char *name, void *userdata) {
        const int *store_fd = userdata;
        char sum[SHA256_HEX_SIZE], path[sizeof(STORE_ROOTS) + SHA256_HEX_SIZE];
        ssize_t n = readlinkat(dir_fd, name, sum, sizeof(sum));

        if (n == (ssize_t) sizeof(sum) - 1) {
                sum[n] = 0;
                (void) snprintf(path, sizeof(path), STORE_ROOTS "/%s", sum);
                if (faccessat(*store_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) >= 0 || errno != ENOENT)
                        return 0;
        }
        return unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int objects_sweep(int store_fd) {
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(directories) && r >= 0; i++)
                if (directories[i])
                        r = for_each_entry(store_fd, directories[i], sweep_object, NULL);
        return r < 0 ? r : for_each_entry(store_fd, STORE_INPUTS, sweep_input, &store_fd);
}
