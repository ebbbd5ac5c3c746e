/* SPDX-License-Identifier: Apache-2.0 */

/* Overlays merged by a real cube-stored, against a model that looks at one block after the other. */

#include <fcntl.h>

#include "base/packet-client.h"
#include "tests/unit/real-stored.h"
#include "tests/unit/test.h"

#define BLOCK 4096U
#define BLOCKS_MAX 64U

static RealStored stored;
static int result;

static void start(void) {
        if (!stored.client && real_stored_start(&stored) < 0)
                test_skip("cube-stored is not built");
}

static void on_answer(int error, void *userdata) {
        result = error;
}

static int merge(const int *layers, size_t n, int fd) {
        result = 1;
        return real_stored_wait(&stored, store_client_merge_disk(stored.client, layers, n, fd, on_answer, NULL),
                                &result);
}

static void write_block(int fd, unsigned block, int byte) {
        uint8_t data[BLOCK];

        memset(data, byte, sizeof(data));
        assert_eq(pwrite(fd, data, sizeof(data), (off_t) block * BLOCK), sizeof(data));
}

/* The block's bytes, all the same; -1: a hole. */
static int block_of(int fd, unsigned block) {
        uint8_t data[BLOCK];

        if (lseek(fd, (off_t) block * BLOCK, SEEK_DATA) != (off_t) block * BLOCK)
                return -1;
        assert_eq(pread(fd, data, sizeof(data), (off_t) block * BLOCK), sizeof(data));
        assert_true(memcmp(data, data + 1, sizeof(data) - 1) == 0);
        return data[0];
}

static int overlay(unsigned n_blocks, int (*open_file)(void)) {
        int fd = open_file();

        assert_ok(fd);
        assert_ok(ftruncate(fd, (off_t) n_blocks * BLOCK));
        return fd;
}

TEST(the_upper_layer_wins_and_zeros_are_data) {
        start();
        int layers[] = { overlay(8, real_stored_file), overlay(4, real_stored_file) };
        _cleanup_close_ int fd = real_stored_file();

        write_block(layers[0], 0, 1);
        write_block(layers[0], 1, 1);
        write_block(layers[0], 7, 1);
        write_block(layers[1], 1, 0);
        write_block(layers[1], 2, 2);
        assert_ok(merge(layers, 2, fd));
        assert_eq(block_of(fd, 0), 1);
        assert_eq(block_of(fd, 1), 0);
        assert_eq(block_of(fd, 2), 2);
        assert_eq(block_of(fd, 3), -1);
        assert_eq(block_of(fd, 7), 1);
        assert_eq(lseek(fd, 0, SEEK_END), 8 * BLOCK);
        close(layers[0]);
        close(layers[1]);
}

static void check_random(unsigned seed, int (*open_file)(void)) {
        _cleanup_close_ int fd = real_stored_file();
        int layers[VMM_DISK_LAYERS_MAX], want[BLOCKS_MAX];
        unsigned longest = 0;

        srand(seed);
        size_t n = 1 + (unsigned) rand() % VMM_DISK_LAYERS_MAX;
        for (unsigned b = 0; b < BLOCKS_MAX; b++)
                want[b] = -1;
        for (size_t i = 0; i < n; i++) {
                unsigned n_blocks = (unsigned) rand() % (BLOCKS_MAX + 1);

                layers[i] = overlay(n_blocks, open_file);
                longest = MAX(longest, n_blocks);
                for (unsigned b = 0; b < n_blocks; b++)
                        if (rand() % 3 == 0) {
                                want[b] = rand() % 4;
                                write_block(layers[i], b, want[b]);
                        }
        }
        assert_ok(merge(layers, n, fd));
        assert_eq(lseek(fd, 0, SEEK_END), longest * BLOCK);
        for (unsigned b = 0; b < longest; b++)
                assert_eq(block_of(fd, b), want[b]);
        for (size_t i = 0; i < n; i++)
                close(layers[i]);
}

TEST(random_layers_are_merged_as_block_by_block) {
        start();
        for (unsigned seed = 0; seed < 50; seed++)
                check_random(seed, real_stored_file);
}

TEST(layers_of_another_file_system_are_copied_too) {
        start();
        for (unsigned seed = 100; seed < 110; seed++)
                check_random(seed, real_stored_memory_file);
}

TEST(an_end_amid_a_block_is_kept) {
        start();
        int layers[] = { overlay(0, real_stored_file), overlay(0, real_stored_file) };
        _cleanup_close_ int fd = real_stored_file();
        char text[4] = "";

        assert_eq(pwrite(layers[0], "abcd", 4, 0), 4);
        assert_eq(pwrite(layers[1], "x", 1, 0), 1);
        assert_ok(merge(layers, 2, fd));
        assert_eq(lseek(fd, 0, SEEK_END), 4);
        assert_eq(pread(fd, text, 4, 0), 4);
        assert_true(memcmp(text, "xbcd", 4) == 0);
        close(layers[0]);
        close(layers[1]);
}

TEST(what_is_no_file_is_refused) {
        _cleanup_close_ int fd = real_stored_file(), layer = real_stored_file(), full = real_stored_file();
        int ends[2], many[PACKET_FDS_LIMIT];

        start();
        assert_ok(pipe2(ends, O_CLOEXEC));
        assert_eq(merge(&ends[0], 1, fd), -EINVAL);
        assert_eq(merge(&layer, 1, ends[1]), -EINVAL);
        write_block(full, 0, 1);
        assert_eq(merge(&layer, 1, full), -EINVAL);
        assert_eq(merge(NULL, 0, fd), -EINVAL);
        for (size_t i = 0; i < ELEMENTSOF(many); i++)
                many[i] = layer;
        assert_eq(merge(many, VMM_DISK_LAYERS_MAX + 1, fd), -EINVAL);
        assert_eq(merge(many, ELEMENTSOF(many), fd), -E2BIG);
        close(ends[0]);
        close(ends[1]);
}

TEST(a_full_disk_is_an_error) {
        int layer = overlay(32, real_stored_file);

        start();
        _cleanup_close_ int fd = real_stored_small_file(8 * BLOCK);
        if (fd == -EPERM)
                test_skip("no privileges to make a small file system");
        assert_ok(fd);
        for (unsigned b = 0; b < 32; b++)
                write_block(layer, b, 1);
        assert_eq(merge(&layer, 1, fd), -ENOSPC);
        close(layer);
        real_stored_stop(&stored);
}
