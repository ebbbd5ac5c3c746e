/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "test.h"
#include "vmm/overlay.h"

#define BASE_BYTES (KIB(100) + 512)
#define DISK_BYTES (KIB(256) + 1024)

static Overlay o;
static int base_fd, overlay_fd;
/* What the disk must read as. */
static uint8_t model[DISK_BYTES];

static int temporary_file(void) {
        const char *dir = getenv("TMPDIR") ?: "/var/tmp";

        int fd = open(dir, O_TMPFILE|O_RDWR|O_CLOEXEC, 0600);
        if (fd < 0)
                test_skip("no O_TMPFILE in TMPDIR");
        return fd;
}

static void open_overlay(void) {
        assert_ok(overlay_init(&o, dup(base_fd), dup(overlay_fd), BASE_BYTES, DISK_BYTES));
}

static void make(void) {
        base_fd = temporary_file();
        overlay_fd = temporary_file();
        memset(model, 0, sizeof(model));
        for (size_t i = 0; i < BASE_BYTES; i++)
                model[i] = (uint8_t) (i / 512 * 13 + i % 251 + 1);
        assert_eq(pwrite(base_fd, model, BASE_BYTES, 0), BASE_BYTES);
        assert_ok(ftruncate(overlay_fd, DISK_BYTES));
        open_overlay();
}

static void done(void) {
        overlay_done(&o);
        base_fd = safe_close(base_fd);
        overlay_fd = safe_close(overlay_fd);
}

static void check_all(void) {
        static uint8_t back[DISK_BYTES];
        struct iovec iov = { back, sizeof(back) };

        memset(back, 0xee, sizeof(back));
        assert_ok(overlay_read(&o, &iov, 1, 0));
        for (size_t i = 0; i < sizeof(back); i++)
                if (back[i] != model[i])
                        test_stop(TEST_FAILED, __LINE__, "byte %zu is %u, not %u", i, back[i], model[i]);
}

static int write_at(uint64_t offset, size_t size, uint8_t seed) {
        static uint8_t data[DISK_BYTES];
        struct iovec iov[3];

        for (size_t i = 0; i < size; i++)
                data[i] = (uint8_t) (seed + i * 3);
        /* Cut into pieces that fit nothing, an empty one among them. */
        size_t first = size / 3;
        iov[0] = (struct iovec) { data, first };
        iov[1] = (struct iovec) { data, 0 };
        iov[2] = (struct iovec) { data + first, size - first };
        int r = overlay_write(&o, iov, 3, offset);
        if (r >= 0)
                memcpy(model + offset, data, size);
        return r;
}

TEST(reads_the_base_and_zeros_behind_it) {
        make();
        check_all();
        assert_eq(overlay_present_bytes(&o), 0);
        done();
}

TEST(whole_blocks) {
        make();
        assert_ok(write_at(0, 4096, 1));
        assert_ok(write_at(o.block * 3, o.block * 4, 2));
        check_all();
        assert_eq(overlay_present_bytes(&o), (uint64_t) o.block * 4 + ALIGN_UP(4096U, o.block));
        done();
}

TEST(parts_of_blocks_take_the_rest_from_the_base) {
        make();
        assert_ok(write_at(512, 512, 1));
        assert_ok(write_at(o.block + 512, o.block, 2));
        /* Over the base's end, in the middle of a block. */
        assert_ok(write_at(BASE_BYTES - 512, 1024, 3));
        /* The disk's end, which is no block's. */
        assert_ok(write_at(DISK_BYTES - 512, 512, 4));
        assert_ok(write_at(DISK_BYTES - 1024 - 512, 512, 5));
        check_all();
        done();
}

TEST(base_is_never_written) {
        static uint8_t before[BASE_BYTES], after[BASE_BYTES];

        make();
        assert_eq(pread(base_fd, before, BASE_BYTES, 0), BASE_BYTES);
        assert_ok(write_at(0, DISK_BYTES, 9));
        assert_ok(overlay_flush(&o));
        assert_eq(pread(base_fd, after, BASE_BYTES, 0), BASE_BYTES);
        assert_eq(memcmp(before, after, BASE_BYTES), 0);
        check_all();
        done();
}

TEST(outside_is_refused) {
        static uint8_t data[1024];
        struct iovec iov = { data, sizeof(data) };

        make();
        static const uint64_t bad[] = { DISK_BYTES - 512, DISK_BYTES, DISK_BYTES + 512, UINT64_MAX, UINT64_MAX - 511 };
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                assert_eq(overlay_read(&o, &iov, 1, bad[i]), -EINVAL);
                assert_eq(overlay_write(&o, &iov, 1, bad[i]), -EINVAL);
        }
        struct iovec many[2] = { { data, 512 }, { data, SIZE_MAX } };
        assert_eq(overlay_read(&o, many, 2, 0), -EINVAL);
        done();
}

TEST(survives_reopening) {
        make();
        assert_ok(write_at(512, 512, 1));
        assert_ok(write_at(KIB(64), KIB(8), 2));
        assert_ok(write_at(DISK_BYTES - 512, 512, 3));
        uint64_t present = overlay_present_bytes(&o);
        /* Zeros that were written are not a hole. */
        static const uint8_t zeros[8192];
        struct iovec iov = { (void *) zeros, sizeof(zeros) };
        assert_ok(overlay_write(&o, &iov, 1, 8192));
        memset(model + 8192, 0, sizeof(zeros));
        present += ALIGN_UP(sizeof(zeros), (size_t) o.block);

        overlay_done(&o);
        open_overlay();
        assert_eq(overlay_present_bytes(&o), present);
        check_all();
        done();
}

TEST(random_writes_against_a_model) {
        unsigned seed = 7;

        make();
        for (unsigned i = 0; i < 3000; i++) {
                seed = seed * 1103515245 + 12345;
                uint64_t offset = (seed >> 8) % (DISK_BYTES / 512) * 512;
                seed = seed * 1103515245 + 12345;
                uint64_t size = MIN((1 + (seed >> 8) % 40) * 512, DISK_BYTES - offset);
                assert_ok(write_at(offset, size, (uint8_t) seed));
                if (i % 500 == 0) {
                        overlay_done(&o);
                        open_overlay();
                        check_all();
                }
        }
        check_all();
        done();
}

TEST(many_buffers) {
        static uint8_t data[600][512];
        struct iovec iov[600];

        make();
        size_t n = DISK_BYTES / 512;
        for (size_t i = 0; i < n; i++) {
                memset(data[i], (int) i, 512);
                memset(model + i * 512, (int) i, 512);
                iov[i] = (struct iovec) { data[i], 512 };
        }
        assert_ok(overlay_write(&o, iov, n, 0));
        check_all();
        memset(data, 0, sizeof(data));
        assert_ok(overlay_read(&o, iov, n, 0));
        assert_eq(memcmp(data, model, DISK_BYTES), 0);
        done();
}

TEST(read_only) {
        make();
        overlay_done(&o);
        assert_ok(overlay_init(&o, dup(base_fd), -EBADF, BASE_BYTES, BASE_BYTES));
        uint8_t data[512] = {};
        struct iovec iov = { data, sizeof(data) };
        assert_eq(overlay_write(&o, &iov, 1, 0), -EROFS);
        assert_ok(overlay_read(&o, &iov, 1, 512));
        assert_eq(memcmp(data, model + 512, 512), 0);
        assert_ok(overlay_flush(&o));
        done();
}

TEST(without_a_base) {
        make();
        overlay_done(&o);
        assert_ok(overlay_init(&o, -EBADF, dup(overlay_fd), 0, DISK_BYTES));
        memset(model, 0, sizeof(model));
        assert_ok(write_at(1024, 512, 5));
        check_all();
        done();
}

TEST(configurations_that_make_no_sense) {
        make();
        overlay_done(&o);
        assert_eq(overlay_init(&o, dup(base_fd), -EBADF, BASE_BYTES, 0), -EINVAL);
        assert_eq(overlay_init(&o, dup(base_fd), -EBADF, BASE_BYTES, BASE_BYTES - 512), -EINVAL);
        assert_eq(overlay_init(&o, -EBADF, -EBADF, 512, 512), -EINVAL);
        assert_eq(overlay_init(&o, dup(base_fd), -EBADF, 0, OVERLAY_DISK_BYTES_MAX + 1), -EINVAL);
        /* An overlay file that is longer than the disk, and one that is no file. */
        assert_eq(overlay_init(&o, dup(base_fd), dup(overlay_fd), 512, 1024), -EINVAL);
        assert_eq(overlay_init(&o, dup(base_fd), open("/dev/null", O_RDWR|O_CLOEXEC), BASE_BYTES, DISK_BYTES), -EINVAL);
        done();
}

TEST(a_base_that_shrank_is_an_error) {
        uint8_t data[1024];
        struct iovec iov = { data, sizeof(data) };

        make();
        assert_ok(ftruncate(base_fd, 4096));
        assert_ok(overlay_read(&o, &iov, 1, 0));
        assert_eq(overlay_read(&o, &iov, 1, 8192), -EIO);
        done();
}

/* A write that fails, at once or half way: an error, and what could not be written whole is still the
 * base's, now and after reopening. */
TEST(writes_that_fail) {
        static uint8_t data[KIB(64)];
        struct iovec iov = { data, sizeof(data) };
        struct rlimit limit, old;
        int r;

        make();
        assert_ok(write_at(512, 512, 1));
        assert_ok(write_at(KIB(96) + 512, 512, 2));

        /* Stands for a full file system: a short write up to the limit, then an error. */
        (void) signal(SIGXFSZ, SIG_IGN);
        assert_ok(getrlimit(RLIMIT_FSIZE, &old));
        limit = (struct rlimit) { .rlim_cur = KIB(104) + 1024, .rlim_max = old.rlim_max };
        assert_ok(setrlimit(RLIMIT_FSIZE, &limit));
        r = overlay_write(&o, &iov, 1, KIB(100));
        int half = overlay_write(&o, &(struct iovec) { data, 1024 }, 1, KIB(104) + 512);
        int behind = overlay_write(&o, &iov, 1, KIB(128) + 512);
        assert_ok(setrlimit(RLIMIT_FSIZE, &old));
        assert_eq(r, -EFBIG);
        assert_eq(half, -EFBIG);
        assert_eq(behind, -EFBIG);

        check_all();
        overlay_done(&o);
        open_overlay();
        check_all();
        done();
}
