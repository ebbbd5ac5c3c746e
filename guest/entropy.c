/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/random.h>
#include <sys/ioctl.h>

#include "guest/entropy.h"

typedef struct Pool {
        struct rand_pool_info info;
        uint8_t bytes[256];
} Pool;

static int add(int fd, const Pool *pool) {
        if (ioctl(fd, RNDADDENTROPY, pool) < 0)
                return -errno;

        /* Without it the generator would go on for up to a minute (6.1, 6.12) with a key that all copies
         * share. ENODATA: it never had one, and seeds itself from what was added as soon as that is enough. */
        if (ioctl(fd, RNDRESEEDCRNG) < 0 && errno != ENODATA)
                return -errno;
        return 0;
}

int entropy_add(const void *data, size_t size) {
        Pool pool;

        if (size > sizeof(pool.bytes))
                return -EINVAL;
        pool.info.entropy_count = (int) size * 8;
        pool.info.buf_size = (int) size;
        memcpy(pool.info.buf, data, size);

        _cleanup_close_ int fd = open("/dev/urandom", O_RDONLY|O_CLOEXEC);
        int r = fd < 0 ? -errno : add(fd, &pool);
        explicit_bzero(&pool, sizeof(pool));
        return r;
}
