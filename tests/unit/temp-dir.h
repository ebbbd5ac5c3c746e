/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A directory for one test, removed at its end by the _cleanup_ that holds it. */

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/macros.h"

typedef struct TempDir {
        char path[64];
        int fd;
} TempDir;

static int temp_dir_remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

_unused_ static TempDir temp_dir_make(void) {
        TempDir d = { .path = "/tmp/cube-test.XXXXXX" };

        assert(mkdtemp(d.path));
        d.fd = open(d.path, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        assert(d.fd >= 0);
        return d;
}

_unused_ static void temp_dir_done(TempDir *d) {
        safe_close(d->fd);
        (void) nftw(d->path, temp_dir_remove_entry, 16, FTW_DEPTH|FTW_PHYS);
}
#define _cleanup_temp_dir_ _cleanup_(temp_dir_done)

/* path is relative to the directory. */
_unused_ static void temp_dir_write(const TempDir *d, const char *path, const void *data, size_t size) {
        _cleanup_close_ int fd = openat(d->fd, path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0644);

        assert(fd >= 0);
        assert(write_full(fd, data, size) >= 0);
}

_unused_ static int temp_dir_open(const TempDir *d, const char *path, int flags) {
        int fd = openat(d->fd, path, flags|O_CLOEXEC, 0644);

        assert(fd >= 0);
        return fd;
}
