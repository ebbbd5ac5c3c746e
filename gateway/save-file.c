/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/macros.h"
#include "gateway/save-file.h"

static int write_all(int fd, const char *data, size_t size) {
        while (size > 0) {
                ssize_t n = write(fd, data, size);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                data += n;
                size -= (size_t) n;
        }
        return 0;
}

static int sync_directory(const char *path) {
        _cleanup_free_ char *copy = strdup(path);
        _cleanup_close_ int fd = -EBADF;

        if (!copy)
                return -ENOMEM;
        fd = open(dirname(copy), O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return fsync(fd) < 0 ? -errno : 0;
}

int save_file(const char *path, const void *data, size_t size) {
        _cleanup_free_ char *temporary = NULL;
        _cleanup_close_ int fd = -EBADF;

        if (asprintf(&temporary, "%s.new", path) < 0) {
                temporary = NULL;
                return -ENOMEM;
        }
        fd = open(temporary, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        int r = write_all(fd, data, size);
        if (r >= 0 && fsync(fd) < 0)
                r = -errno;
        if (r >= 0 && rename(temporary, path) < 0)
                r = -errno;
        if (r < 0) {
                (void) unlink(temporary);
                return r;
        }
        return sync_directory(path);
}

int load_file(const char *path, size_t max, char **ret, size_t *ret_size) {
        _cleanup_close_ int fd = open(path, O_RDONLY|O_CLOEXEC|O_NOCTTY|O_NONBLOCK);
        _cleanup_free_ char *data = NULL;
        size_t n = 0;

        if (fd < 0)
                return -errno;
        data = malloc(max + 2);
        if (!data)
                return -ENOMEM;
        while (n <= max) {
                ssize_t k = read(fd, data + n, max + 1 - n);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return -errno;
                if (k == 0)
                        break;
                n += (size_t) k;
        }
        if (n > max)
                return -EFBIG;
        data[n] = 0;
        *ret = TAKE_PTR(data);
        *ret_size = n;
        return 0;
}
