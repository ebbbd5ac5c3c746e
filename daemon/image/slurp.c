/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "daemon/image/slurp.h"

int slurp(int fd, size_t max, uint8_t **ret, size_t *ret_size) {
        _cleanup_free_ uint8_t *p = NULL;
        size_t size = 0, allocated = 0;

        for (;;) {
                ssize_t n;

                if (size + 1 >= allocated) {
                        size_t more = MIN(MAX(allocated * 2, (size_t) MIB(1)), max + 2);
                        uint8_t *q = realloc(p, more);
                        if (!q)
                                return -ENOMEM;
                        p = q;
                        allocated = more;
                }
                n = read(fd, p + size, allocated - size - 1);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                size += (size_t) n;
                if (size > max)
                        return -EFBIG;
        }

        p[size] = 0;
        *ret = TAKE_PTR(p);
        *ret_size = size;
        return 0;
}

int slurp_open_at(int dir_fd, const char *path, int *ret_fd) {
        struct open_how how = {
                .flags = O_RDONLY|O_CLOEXEC|O_NONBLOCK,
                .resolve = RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS|RESOLVE_NO_MAGICLINKS,
        };
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        fd = (int) syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EINVAL;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int slurp_at(int dir_fd, const char *path, size_t max, uint8_t **ret, size_t *ret_size) {
        _cleanup_close_ int fd = -EBADF;

        int r = slurp_open_at(dir_fd, path, &fd);
        return r < 0 ? r : slurp(fd, max, ret, ret_size);
}
