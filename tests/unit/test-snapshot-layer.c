/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/mman.h>
#include <zlib.h>

#include "test.h"
#include "vmm/pagemap.h"
#include "vmm/snapshot-layer.h"

#define PAGE SNAPSHOT_PAGE_BYTES
#define MEMORY MIB(4)

static GuestMem mem;
static ErrorText e;

/* A layer of n pages each full of value, from gpa on; the last is one of zeros. */
static int make_layer(uint8_t own, uint8_t below, uint64_t gpa, unsigned n, uint8_t value) {
        SnapshotRun runs[2] = {
                { .gpa = gpa, .bytes = (n - 1) * PAGE, .file_offset = PAGE },
                { .gpa = gpa + (n - 1) * PAGE, .bytes = PAGE, .file_offset = SNAPSHOT_RUN_ZERO },
        };
        SnapshotLayerHeader h = {
                .magic = SNAPSHOT_LAYER_MAGIC, .version = 1, .n_runs = 2, .mem_bytes = MEMORY,
                .id = { own }, .parent = { below },
        };
        uint8_t page[PAGE];

        h.crc = (uint32_t) crc32(crc32(0, (Bytef *) &h, sizeof(h)), (Bytef *) runs, sizeof(runs));
        int fd = memfd_create("layer", MFD_CLOEXEC);
        assert_true(fd >= 0);
        assert_eq(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
        assert_eq(pwrite(fd, runs, sizeof(runs), sizeof(h)), sizeof(runs));
        memset(page, value, sizeof(page));
        for (unsigned i = 0; i < n - 1; i++)
                assert_eq(pwrite(fd, page, sizeof(page), PAGE * (1 + i)), sizeof(page));
        return fd;
}

static uint8_t byte_at(uint64_t gpa) {
        return *(uint8_t *) guest_mem_ptr(&mem, gpa, 1);
}

TEST(layers_lie_over_each_other) {
        const uint8_t id[SNAPSHOT_ID_BYTES] = { 2 };
        LayerStack stack;
        bool touched;

        assert_ok(guest_mem_init(&mem, MEMORY));
        int fds[] = { make_layer(1, 0, 0, 8, 0x11), make_layer(2, 1, 2 * PAGE, 3, 0x22) };
        assert_ok(layer_stack_open(&stack, fds, 2, id, &mem, &e));
        assert_eq(layer_stack_runs(&stack), 4);
        memset(guest_mem_ptr(&mem, 0, MEMORY), 0xee, MEMORY);
        assert_ok(layer_stack_map(&stack, &mem, &touched, &e));
        static const uint8_t expected[] = { 0x11, 0x11, 0x22, 0x22, 0, 0x11, 0x11, 0, 0 };
        for (unsigned i = 0; i < ELEMENTSOF(expected); i++)
                assert_eq(byte_at(i * PAGE), expected[i]);
        assert_eq(byte_at(MEMORY - 1), 0);

        /* What is written is ours alone, and dropping it shows what is beneath. */
        memset(guest_mem_ptr(&mem, 0, 9 * PAGE), 0x99, 9 * PAGE);
        assert_ok(guest_mem_drop_private(&mem));
        for (unsigned i = 0; i < ELEMENTSOF(expected); i++)
                assert_eq(byte_at(i * PAGE), expected[i]);

        layer_stack_done(&stack);
        close_range((unsigned) MIN(fds[0], fds[1]), (unsigned) MAX(fds[0], fds[1]), 0);
        guest_mem_done(&mem);
}

TEST(chains_are_checked) {
        const uint8_t one[SNAPSHOT_ID_BYTES] = { 1 }, two[SNAPSHOT_ID_BYTES] = { 2 };
        LayerStack stack;

        assert_ok(guest_mem_init(&mem, MEMORY));
        int fds[] = { make_layer(1, 0, 0, 8, 1), make_layer(2, 1, 0, 8, 2) };
        int reversed[] = { fds[1], fds[0] };
        assert_eq(layer_stack_open(&stack, fds, 2, one, &mem, &e), -EBADMSG);
        assert_eq(layer_stack_open(&stack, fds, 1, two, &mem, &e), -EBADMSG);
        assert_eq(layer_stack_open(&stack, reversed, 2, one, &mem, &e), -EBADMSG);
        assert_eq(layer_stack_open(&stack, fds + 1, 1, two, &mem, &e), -EBADMSG);
        assert_eq(layer_stack_open(&stack, fds, 0, two, &mem, &e), -EBADMSG);
        assert_eq(stack.n, 0);
        assert_ok(layer_stack_open(&stack, fds, 1, one, &mem, &e));
        layer_stack_done(&stack);
        close(fds[0]);
        close(fds[1]);
        guest_mem_done(&mem);
}

/* From a mapping that fails on nothing is known, and the caller is told. */
TEST(a_mapping_that_fails_is_told) {
        const uint8_t id[SNAPSHOT_ID_BYTES] = { 1 };
        LayerStack stack;
        bool touched;

        assert_ok(guest_mem_init(&mem, MEMORY));
        int fd = make_layer(1, 0, 0, 8, 1);
        assert_ok(layer_stack_open(&stack, &fd, 1, id, &mem, &e));
        close(fd);
        assert_eq(layer_stack_map(&stack, &mem, &touched, &e), -EBADF);
        assert_true(touched);
        layer_stack_done(&stack);
        guest_mem_done(&mem);
}

static VmmRun runs[PAGEMAP_RUNS_MAX], slow[PAGEMAP_RUNS_MAX];

TEST(private_pages_are_found) {
        size_t n, n_slow;

        int fd = open("/proc/self/pagemap", O_RDONLY|O_CLOEXEC);
        if (fd < 0)
                test_skip("needs /proc/self/pagemap");
        assert_ok(guest_mem_init(&mem, MEMORY));
        int layer_fd = make_layer(1, 0, 0, 64, 1);
        Layer layer;
        assert_ok(layer_open(&layer, layer_fd, &mem, &e));
        assert_ok(layer_map(&layer, &mem, &e));

        /* Reading makes nothing private. */
        for (unsigned i = 0; i < 128; i++)
                (void) *(volatile uint8_t *) guest_mem_ptr(&mem, i * PAGE, 1);
        assert_ok(pagemap_private_runs(fd, &mem, runs, &n, &e));
        assert_true(n == 0 || n == 1); /* zero pages count where there is no PAGEMAP_SCAN */

        static const unsigned written[] = { 3, 4, 5, 100, 1000 };
        for (unsigned i = 0; i < ELEMENTSOF(written); i++)
                memset(guest_mem_ptr(&mem, written[i] * PAGE, PAGE), 7, PAGE);
        for (unsigned i = 63; i < 128; i++)
                if (i != 100)
                        assert_ok(guest_mem_clear(&mem, i * PAGE, PAGE));
        assert_ok(pagemap_private_runs(fd, &mem, runs, &n, &e));
        assert_eq(n, 3);
        assert_eq(runs[0].gpa, 3 * PAGE);
        assert_eq(runs[0].bytes, 3 * PAGE);
        assert_eq(runs[0].hva, (uintptr_t) guest_mem_ptr(&mem, 3 * PAGE, 1));
        assert_eq(runs[2].gpa, 1000 * PAGE);
        assert_ok(pagemap_private_runs_slow(fd, &mem, slow, &n_slow, &e));
        assert_eq(n_slow, n);
        assert_true(memcmp(runs, slow, n * sizeof(runs[0])) == 0);

        layer_done(&layer);
        close(layer_fd);
        close(fd);
        guest_mem_done(&mem);
}

/* More runs than fit are joined, and cover at least what was there. */
TEST(runs_are_bounded) {
        size_t n;

        int fd = open("/proc/self/pagemap", O_RDONLY|O_CLOEXEC);
        if (fd < 0)
                test_skip("needs /proc/self/pagemap");
        assert_ok(guest_mem_init(&mem, MIB(64)));
        for (uint64_t gpa = 0; gpa < MIB(64); gpa += 2 * PAGE)
                *(uint8_t *) guest_mem_ptr(&mem, gpa, 1) = 1;
        assert_ok(pagemap_private_runs(fd, &mem, runs, &n, &e));
        assert_true(n > 0 && n <= PAGEMAP_RUNS_MAX);
        uint64_t covered = 0;
        for (size_t i = 0; i < n; i++) {
                assert_true(i == 0 || runs[i].gpa >= runs[i - 1].gpa + runs[i - 1].bytes);
                covered += runs[i].bytes;
        }
        assert_true(covered >= MIB(32));
        assert_eq(runs[0].gpa, 0);
        close(fd);
        guest_mem_done(&mem);
}
