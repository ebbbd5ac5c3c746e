/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

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

/* As a layer is given: read-only. */
static int reopen(int fd) {
        char path[32];

        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, O_RDONLY|O_CLOEXEC);
}

static int init(int base, uint64_t base_bytes, uint64_t disk_bytes, int overlay) {
        OverlayFds fds = { .overlay_fd = overlay };
        return overlay_init(&o, base, base_bytes, disk_bytes, &fds, NULL);
}

static void open_overlay(void) {
        assert_ok(init(dup(base_fd), BASE_BYTES, DISK_BYTES, dup(overlay_fd)));
}

static uint64_t unit(void) {
        return o.files[o.top].unit;
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
        assert_ok(write_at(unit() * 3, unit() * 4, 2));
        check_all();
        assert_eq(overlay_present_bytes(&o), unit() * 4 + ALIGN_UP((uint64_t) 4096, unit()));
        done();
}

TEST(parts_of_blocks_take_the_rest_from_the_base) {
        make();
        assert_ok(write_at(512, 512, 1));
        assert_ok(write_at(unit() + 512, unit(), 2));
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
        present += ALIGN_UP(sizeof(zeros), unit());

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
        assert_ok(init(dup(base_fd), BASE_BYTES, BASE_BYTES, -EBADF));
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
        assert_ok(init(-EBADF, 0, DISK_BYTES, dup(overlay_fd)));
        memset(model, 0, sizeof(model));
        assert_ok(write_at(1024, 512, 5));
        check_all();
        done();
}

TEST(configurations_that_make_no_sense) {
        make();
        overlay_done(&o);
        assert_eq(init(dup(base_fd), BASE_BYTES, 0, -EBADF), -EINVAL);
        assert_eq(init(dup(base_fd), BASE_BYTES, BASE_BYTES - 512, -EBADF), -EINVAL);
        assert_eq(init(-EBADF, 512, 512, -EBADF), -EINVAL);
        assert_eq(init(dup(base_fd), 0, OVERLAY_DISK_BYTES_MAX + 1, -EBADF), -EINVAL);
        /* An overlay file that is longer than the disk, and one that is no file. */
        assert_eq(init(dup(base_fd), 512, 1024, dup(overlay_fd)), -EINVAL);
        assert_eq(init(dup(base_fd), BASE_BYTES, DISK_BYTES, open("/dev/null", O_RDWR|O_CLOEXEC)), -EINVAL);
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

/* Layers. What was written goes on in each of them. */

static int files[VMM_DISK_LAYERS_MAX + 1]; /* the oldest top first */
static unsigned n_files;

static int new_file(void) {
        files[n_files] = temporary_file();
        return files[n_files++];
}

static void make_layered(void) {
        make();
        n_files = 0;
        files[n_files++] = dup(overlay_fd);
}

static void done_layered(void) {
        while (n_files > 0)
                safe_close(files[--n_files]);
        done();
}

static int freeze(OverlayFds fds, ErrorText *e) {
        OverlayChange c;

        int r = overlay_prepare_next(&o, &fds, &c, e);
        assert_true(fds.n_layers == 0 && fds.overlay_fd < 0);
        if (r >= 0)
                overlay_change(&o, &c);
        overlay_change_done(&c);
        return r;
}

static int freeze_to_new(void) {
        return freeze((OverlayFds) { .overlay_fd = dup(new_file()) }, NULL);
}

/* All files but the last as layers, that one as the top. */
static OverlayFds whole_chain(void) {
        OverlayFds fds = { .overlay_fd = dup(files[n_files - 1]) };

        while (fds.n_layers + 1 < n_files) {
                fds.layer_fds[fds.n_layers] = reopen(files[fds.n_layers]);
                fds.n_layers++;
        }
        return fds;
}

static int reopen_chain(uint64_t disk_bytes) {
        OverlayFds fds = whole_chain();

        overlay_done(&o);
        return overlay_init(&o, dup(base_fd), BASE_BYTES, disk_bytes, &fds, NULL);
}

static uint64_t data_bytes(int fd) {
        struct stat st;

        assert_ok(fstat(fd, &st));
        return (uint64_t) st.st_blocks * 512;
}

TEST(a_frozen_top_is_never_written_again) {
        static uint8_t before[DISK_BYTES], after[DISK_BYTES];

        make_layered();
        assert_ok(write_at(0, KIB(32), 1));
        assert_ok(write_at(KIB(100) + 512, 512, 2));
        assert_eq(pread(overlay_fd, before, DISK_BYTES, 0), DISK_BYTES);
        assert_ok(freeze_to_new());
        assert_eq(overlay_present_bytes(&o), 0);
        check_all();

        assert_ok(write_at(512, 512, 3));
        assert_ok(write_at(KIB(16), KIB(64), 4));
        assert_ok(write_at(DISK_BYTES - 512, 512, 5));
        assert_ok(overlay_flush(&o));
        check_all();
        assert_eq(pread(overlay_fd, after, DISK_BYTES, 0), DISK_BYTES);
        assert_eq(memcmp(before, after, DISK_BYTES), 0);
        done_layered();
}

TEST(the_frozen_top_is_read_through_another_descriptor) {
        make_layered();
        assert_ok(write_at(0, KIB(32), 1));
        int written_to = o.files[o.top].fd, frozen = reopen(files[0]);
        assert_ok(freeze((OverlayFds) { .overlay_fd = dup(new_file()), .has_frozen = true, .frozen_fd = frozen }, NULL));
        assert_eq(o.files[o.top - 1].fd, frozen);
        assert_eq(fcntl(frozen, F_GETFL) & O_ACCMODE, O_RDONLY);
        assert_eq(fcntl(written_to, F_GETFL), -1);
        assert_ok(write_at(KIB(16) + 512, KIB(64), 2));
        assert_ok(overlay_flush(&o));
        check_all();
        done_layered();
}

TEST(what_can_not_stand_for_the_frozen_top) {
        ErrorText e = {};

        make_layered();
        assert_ok(write_at(0, KIB(32), 1));
        assert_ok(freeze_to_new());
        int next = temporary_file();
        const struct {
                OverlayFds fds;
                const char *why;
        } cases[] = {
                { { .overlay_fd = dup(next), .frozen_fd = reopen(files[0]) }, "another file" },
                { { .overlay_fd = dup(next), .frozen_fd = reopen(next) }, "another file" },
                { { .overlay_fd = dup(next), .frozen_fd = dup(files[1]) }, "not opened read-only" },
                { { .overlay_fd = dup(next), .frozen_fd = open("/dev/null", O_RDONLY|O_CLOEXEC) }, "regular file" },
                { { .overlay_fd = -EBADF, .frozen_fd = reopen(files[1]) }, "without an overlay" },
                { { .layer_fds = { reopen(files[0]), reopen(files[1]) }, .n_layers = 2, .overlay_fd = dup(next),
                    .frozen_fd = reopen(files[1]) }, "a chain of disk layers and" },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                OverlayFds fds = cases[i].fds;

                fds.has_frozen = true;
                assert_eq(freeze(fds, &e), -EINVAL);
                if (!strstr(e.text, cases[i].why))
                        test_stop(TEST_FAILED, __LINE__, "\"%s\" does not say \"%s\"", e.text, cases[i].why);
                assert_eq(fcntl(fds.frozen_fd, F_GETFL), -1);
        }
        assert_ok(write_at(KIB(4), KIB(64), 2));
        assert_eq(data_bytes(next), 0);
        check_all();
        safe_close(next);
        done_layered();
}

TEST(parts_of_blocks_take_the_rest_from_each_layer) {
        make_layered();
        for (unsigned i = 0; i < VMM_DISK_LAYERS_MAX; i++) {
                /* Of one block a sector in each layer, and a block that only this layer has. */
                assert_ok(write_at(512 * i, 512, (uint8_t) (10 + i)));
                assert_ok(write_at(KIB(32) + unit() * i, unit(), (uint8_t) (30 + i)));
                /* Over blocks of several layers, from the middle of one to the middle of another. */
                assert_ok(write_at(KIB(128) + 512 * i, unit() * 2, (uint8_t) (50 + i)));
                check_all();
                assert_ok(freeze_to_new());
                check_all();
        }
        assert_ok(reopen_chain(DISK_BYTES));
        check_all();
        done_layered();
}

TEST(one_layer_too_many_changes_nothing) {
        ErrorText e = {};

        make_layered();
        for (unsigned i = 0; i < VMM_DISK_LAYERS_MAX; i++) {
                assert_ok(write_at(unit() * i, 512, (uint8_t) i));
                assert_ok(freeze_to_new());
        }
        int extra = temporary_file();
        assert_eq(freeze((OverlayFds) { .overlay_fd = dup(extra) }, &e), -E2BIG);
        assert_true(strstr(e.text, "8 layers"));
        assert_ok(write_at(0, KIB(64), 9));
        assert_eq(data_bytes(extra), 0);
        check_all();
        safe_close(extra);
        done_layered();
}

TEST(random_writes_and_freezes_against_a_model) {
        unsigned seed = 11;

        make_layered();
        for (unsigned i = 0; i < 3000; i++) {
                seed = seed * 1103515245 + 12345;
                uint64_t offset = (seed >> 8) % (DISK_BYTES / 512) * 512;
                seed = seed * 1103515245 + 12345;
                uint64_t size = MIN((1 + (seed >> 8) % 12) * 512, DISK_BYTES - offset);
                assert_ok(write_at(offset, size, (uint8_t) seed));
                if (i % 300 == 299 && o.top < OVERLAY_FILES_MAX - 1) {
                        assert_ok(freeze_to_new());
                        check_all();
                }
                if (i % 500 == 0) {
                        assert_ok(reopen_chain(DISK_BYTES));
                        check_all();
                }
        }
        check_all();
        done_layered();
}

/* Its file system allocates 16 KiB at once, so does who writes to it; what lies beneath is finer. */
TEST(units_of_different_sizes) {
        make_layered();
        assert_ok(write_at(0, 4096, 1));
        assert_ok(write_at(KIB(8), 4096, 2));
        assert_ok(freeze_to_new());
        o.files[o.top].unit = KIB(16);
        assert_ok(write_at(KIB(4) + 512, 512, 3));
        check_all();
        assert_eq(overlay_present_bytes(&o), KIB(16));
        assert_ok(write_at(KIB(12), KIB(24), 4));
        assert_eq(overlay_present_bytes(&o), KIB(48));
        /* The last unit ends with the disk. */
        assert_ok(write_at(DISK_BYTES - 512, 512, 5));
        check_all();
        assert_ok(freeze_to_new());
        assert_ok(write_at(KIB(20), 512, 6));
        check_all();
        assert_ok(reopen_chain(DISK_BYTES));
        check_all();
        done_layered();
}

TEST(layers_of_a_disk_that_was_smaller) {
        static uint8_t data[1024];
        struct iovec iov = { data, sizeof(data) };

        make_layered();
        assert_ok(write_at(DISK_BYTES - 512, 512, 1));
        assert_ok(freeze_to_new());
        assert_ok(reopen_chain(DISK_BYTES + KIB(64)));
        check_all();
        /* In the block that was the last one, behind its old end. */
        assert_ok(overlay_read(&o, &iov, 1, DISK_BYTES - 512));
        assert_eq(memcmp(data, model + DISK_BYTES - 512, 512), 0);
        for (size_t i = 512; i < sizeof(data); i++)
                assert_eq(data[i], 0);
        memset(data, 7, sizeof(data));
        assert_ok(overlay_write(&o, &(struct iovec) { data, 512 }, 1, DISK_BYTES));
        assert_ok(overlay_read(&o, &iov, 1, DISK_BYTES));
        assert_true(data[0] == 7 && data[511] == 7 && data[512] == 0);
        check_all();
        done_layered();
}

/* As it is after a flatten: other files, the same content, and the present top beneath the new one. */
TEST(a_chain_is_replaced) {
        make_layered();
        assert_ok(write_at(0, KIB(16), 1));
        assert_ok(freeze_to_new());
        assert_ok(write_at(KIB(4), KIB(4), 2));
        assert_ok(freeze_to_new());
        int flat = temporary_file();
        assert_eq(pwrite(flat, model, KIB(16), 0), KIB(16));
        assert_ok(write_at(KIB(8), KIB(4), 3));

        int next = temporary_file();
        OverlayFds fds = { .layer_fds = { reopen(flat), reopen(files[2]) }, .n_layers = 2, .overlay_fd = dup(next) };
        assert_ok(freeze(fds, NULL));
        assert_eq(o.top, 3);
        check_all();
        uint64_t before = data_bytes(files[2]);
        assert_ok(write_at(0, KIB(64), 4));
        assert_eq(data_bytes(files[2]), before);
        assert_true(data_bytes(next) >= KIB(64));
        assert_ok(overlay_flush(&o));
        check_all();
        safe_close(flat);
        safe_close(next);
        done_layered();
}

TEST(another_chain_takes_the_place) {
        OverlayChange c;

        make_layered();
        assert_ok(write_at(0, KIB(16), 1));
        assert_ok(freeze_to_new());
        assert_ok(write_at(0, KIB(4), 2));
        OverlayFds fds = whole_chain();
        assert_ok(overlay_prepare_other(&o, &fds, &c, NULL));
        overlay_change_done(&c);
        check_all();

        /* The state of the first layer, under a top that has content already. */
        int top = temporary_file();
        assert_eq(pwrite(top, model, 4096, KIB(32)), 4096);
        fds = (OverlayFds) { .layer_fds = { reopen(files[0]) }, .n_layers = 1, .overlay_fd = dup(top) };
        assert_ok(overlay_prepare_other(&o, &fds, &c, NULL));
        check_all();
        memcpy(model + KIB(32), model, 4096);
        assert_eq(pread(files[0], model, KIB(16), 0), KIB(16));
        overlay_change(&o, &c);
        overlay_change_done(&c);
        check_all();
        safe_close(top);
        done_layered();
}

TEST(files_that_are_no_layers) {
        OverlayChange c;
        OverlayFds fds;

        make_layered();
        assert_ok(write_at(0, KIB(16), 1));
        assert_ok(freeze_to_new());
        int longer = temporary_file(), used = temporary_file(), next = temporary_file();
        assert_ok(ftruncate(longer, DISK_BYTES + 1));
        assert_eq(pwrite(used, model, 512, 0), 512);

        const OverlayFds no_next[] = {
                { .overlay_fd = dup(longer) },
                { .overlay_fd = dup(used) },                  /* not empty */
                { .overlay_fd = dup(files[1]) },              /* the present top */
                { .overlay_fd = dup(files[0]) },
                { .overlay_fd = reopen(next) },               /* can't be written */
                { .overlay_fd = open("/dev/null", O_RDWR|O_CLOEXEC) },
                { .layer_fds = { reopen(files[1]) }, .n_layers = 1, .overlay_fd = -EBADF },
                /* Does not end with the present top. */
                { .layer_fds = { reopen(files[0]) }, .n_layers = 1, .overlay_fd = dup(next) },
                { .layer_fds = { reopen(files[1]) }, .n_layers = 1, .overlay_fd = dup(files[1]) },
                { .layer_fds = { reopen(files[1]), reopen(files[1]) }, .n_layers = 2, .overlay_fd = dup(next) },
                { .layer_fds = { reopen(longer), reopen(files[1]) }, .n_layers = 2, .overlay_fd = dup(next) },
                { .layer_fds = { open("/dev/null", O_RDONLY|O_CLOEXEC), reopen(files[1]) }, .n_layers = 2,
                  .overlay_fd = dup(next) },
                { .layer_fds = { dup(files[1]) }, .n_layers = 1, .overlay_fd = dup(next) }, /* can be written */
        };
        for (unsigned i = 0; i < ELEMENTSOF(no_next); i++) {
                ErrorText e = {};

                int r = freeze(no_next[i], &e);
                if (r != -EINVAL || !e.text[0])
                        test_stop(TEST_FAILED, __LINE__, "files %u: %d, %s", i, r, e.text);
        }
        fds = (OverlayFds) { .layer_fds = { reopen(files[0]) }, .n_layers = 1, .overlay_fd = -EBADF };
        assert_eq(overlay_prepare_other(&o, &fds, &c, NULL), -EINVAL);
        fds = (OverlayFds) { .layer_fds = { reopen(files[0]) }, .n_layers = 1, .overlay_fd = dup(files[0]) };
        assert_eq(overlay_prepare_other(&o, &fds, &c, NULL), -EINVAL);
        assert_ok(write_at(KIB(4), KIB(4), 2));
        check_all();

        overlay_done(&o);
        assert_ok(init(dup(base_fd), BASE_BYTES, BASE_BYTES, -EBADF));
        assert_eq(freeze((OverlayFds) { .overlay_fd = dup(next) }, NULL), -EINVAL);
        safe_close(longer);
        safe_close(used);
        safe_close(next);
        done_layered();
}

/* A write that fails leaves no hole that hides the layer beneath. */
TEST(writes_over_a_layer_that_fail) {
        static uint8_t data[KIB(64)];
        struct rlimit limit, old;

        make_layered();
        assert_ok(write_at(KIB(96), KIB(40), 1));
        assert_ok(freeze_to_new());
        (void) signal(SIGXFSZ, SIG_IGN);
        assert_ok(getrlimit(RLIMIT_FSIZE, &old));
        limit = (struct rlimit) { .rlim_cur = KIB(104) + 1024, .rlim_max = old.rlim_max };
        assert_ok(setrlimit(RLIMIT_FSIZE, &limit));
        int r = overlay_write(&o, &(struct iovec) { data, sizeof(data) }, 1, KIB(100));
        int half = overlay_write(&o, &(struct iovec) { data, 1024 }, 1, KIB(104) + 512);
        assert_ok(setrlimit(RLIMIT_FSIZE, &old));
        assert_eq(r, -EFBIG);
        assert_eq(half, -EFBIG);
        check_all();
        assert_ok(reopen_chain(DISK_BYTES));
        check_all();
        done_layered();
}
