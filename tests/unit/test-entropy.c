/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/random.h>
#include <stdarg.h>

#include "guest/entropy.h"
#include "tests/unit/test.h"

/* What the kernel was asked, in order, and what it says to the second question. */
static unsigned long asked[4];
static unsigned n_asked;
static int add_error, reseed_error;
static int added_bits, added_bytes;

int __wrap_ioctl(int fd, unsigned long request, ...);

int __wrap_ioctl(int fd, unsigned long request, ...) {
        int error = request == RNDADDENTROPY ? add_error : reseed_error;

        assert_true(n_asked < ELEMENTSOF(asked));
        asked[n_asked++] = request;
        if (request == RNDADDENTROPY) {
                va_list ap;

                va_start(ap, request);
                const struct rand_pool_info *info = va_arg(ap, const struct rand_pool_info *);
                va_end(ap);
                added_bits = info->entropy_count;
                added_bytes = info->buf_size;
                assert_eq(((const uint8_t *) info->buf)[info->buf_size - 1], 'z');
        }
        errno = error;
        return error ? -1 : 0;
}

static int try(size_t size, int first, int second) {
        uint8_t data[300];

        memset(data, 'z', sizeof(data));
        n_asked = 0;
        add_error = first;
        reseed_error = second;
        return entropy_add(data, size);
}

TEST(adds_then_reseeds) {
        assert_ok(try(64, 0, 0));
        assert_eq(n_asked, 2);
        assert_eq(asked[0], (unsigned long) RNDADDENTROPY);
        assert_eq(asked[1], (unsigned long) RNDRESEEDCRNG);
        assert_eq(added_bytes, 64);
        assert_eq(added_bits, 512);
        assert_ok(try(256, 0, 0));
        assert_eq(try(257, 0, 0), -EINVAL);
        assert_eq(n_asked, 0);
}

TEST(generator_that_was_never_ready_seeds_itself_later) {
        assert_ok(try(8, 0, ENODATA));
        assert_eq(n_asked, 2);
}

TEST(errors_are_told) {
        assert_eq(try(64, EPERM, 0), -EPERM);
        assert_eq(n_asked, 1);
        assert_eq(try(64, 0, EPERM), -EPERM);
}
