/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include "test.h"
#include "vmm/guest-mem.h"
#include "vmm/memmap.h"

static GuestMem mem;

TEST(small_memory_is_one_region) {
        assert_ok(guest_mem_init(&mem, MIB(64)));
        assert_eq(mem.n_regions, 1);
        assert_eq(mem.regions[0].gpa, 0);
        assert_eq(mem.regions[0].size, MIB(64));
        guest_mem_done(&mem);
        assert_eq(mem.n_regions, 0);
}

TEST(memory_is_split_around_the_hole) {
        assert_ok(guest_mem_init(&mem, MEMMAP_HOLE_START));
        assert_eq(mem.n_regions, 1);
        guest_mem_done(&mem);

        assert_ok(guest_mem_init(&mem, MEMMAP_HOLE_START + MIB(2)));
        assert_eq(mem.n_regions, 2);
        assert_eq(mem.regions[1].gpa, MEMMAP_HOLE_END);
        assert_eq(mem.regions[1].size, MIB(2));
        guest_mem_done(&mem);

        /* Nothing is touched, so this costs address space alone. */
        assert_ok(guest_mem_init(&mem, GIB(32)));
        assert_eq(mem.regions[0].size, GIB(3));
        assert_eq(mem.regions[1].size, GIB(29));
        assert_true(guest_mem_ptr(&mem, MEMMAP_HOLE_END + GIB(29) - 1, 1));
        assert_true(!guest_mem_ptr(&mem, MEMMAP_HOLE_END + GIB(29), 1));
        guest_mem_done(&mem);
}

TEST(odd_sizes_are_refused) {
        assert_eq(guest_mem_init(&mem, 0), -EINVAL);
        assert_eq(guest_mem_init(&mem, MIB(3)), -EINVAL);
        assert_eq(guest_mem_init(&mem, MIB(64) + 4096), -EINVAL);
        assert_eq(guest_mem_init(&mem, UINT64_MAX & ~(MIB(2) - 1)), -EINVAL);
        assert_eq(mem.n_regions, 0);
}

TEST(ranges_lie_in_one_region_or_nowhere) {
        assert_ok(guest_mem_init(&mem, MEMMAP_HOLE_START + MIB(4)));
        const uint64_t low = MEMMAP_HOLE_START, high = MEMMAP_HOLE_END, top = high + MIB(4);
        const struct {
                uint64_t gpa, len;
                bool valid;
        } cases[] = {
                { 0, 1, true },
                { 0, low, true },
                { 0, low + 1, false },
                { low - 1, 1, true },
                { low - 1, 2, false },
                { low, 1, false },
                { low, 0, false },
                { high - 1, 1, false },
                { high - 1, 2, false },
                { high, 1, true },
                { high, MIB(4), true },
                { high, MIB(4) + 1, false },
                { top - 1, 1, true },
                { top - 1, 0, true },
                { top, 0, false },
                { top, 1, false },
                { 0, UINT64_MAX, false },
                { 1, UINT64_MAX, false },
                { high, UINT64_MAX - high + 1, false },
                { UINT64_MAX, 1, false },
                { UINT64_MAX, UINT64_MAX, false },
                { UINT64_MAX - 7, 8, false },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                if (!!guest_mem_ptr(&mem, cases[i].gpa, cases[i].len) != cases[i].valid)
                        test_stop(TEST_FAILED, __LINE__, "0x%llx + 0x%llx",
                                  (unsigned long long) cases[i].gpa,
                                  (unsigned long long) cases[i].len);
        guest_mem_done(&mem);
}

TEST(copies_and_words) {
        uint8_t bytes[4];
        uint16_t v;

        assert_ok(guest_mem_init(&mem, MIB(2)));
        assert_ok(guest_mem_write(&mem, MIB(2) - 4, "abcd", 4));
        assert_ok(guest_mem_read(&mem, MIB(2) - 4, bytes, 4));
        assert_true(memcmp(bytes, "abcd", 4) == 0);
        assert_eq(guest_mem_write(&mem, MIB(2) - 3, "abcd", 4), -EFAULT);
        assert_eq(guest_mem_read(&mem, MIB(2) - 3, bytes, 4), -EFAULT);

        assert_ok(guest_mem_store_u16(&mem, 0x1000, 0xbeef));
        assert_ok(guest_mem_load_u16(&mem, 0x1000, &v));
        assert_eq(v, 0xbeef);
        assert_eq(guest_mem_load_u16(&mem, 0x1001, &v), -EFAULT);
        assert_eq(guest_mem_store_u16(&mem, MIB(2), 1), -EFAULT);
        assert_eq(guest_mem_store_u16(&mem, UINT64_MAX - 1, 1), -EFAULT);
        guest_mem_done(&mem);
}

/* What happens to a process that touches the byte: the signal that ends it, or 0. */
static int touch(uint8_t *p) {
        pid_t pid = fork();
        int status = 0;

        if (pid == 0) {
                (void) signal(SIGSEGV, SIG_DFL);
                *(volatile uint8_t *) p = 1;
                _exit(0);
        }
        assert_eq(waitpid(pid, &status, 0), pid);
        return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(guards_fault_on_both_sides) {
        assert_ok(guest_mem_init(&mem, MIB(2)));
        uint8_t *hva = mem.regions[0].hva;

        assert_eq(touch(hva), 0);
        assert_eq(touch(hva + MIB(2) - 1), 0);
        assert_eq(touch(hva - 1), SIGSEGV);
        assert_eq(touch(hva - KIB(64)), SIGSEGV);
        assert_eq(touch(hva + MIB(2)), SIGSEGV);
        assert_eq(touch(hva + MIB(2) + KIB(64) - 1), SIGSEGV);
        guest_mem_done(&mem);
}

TEST(a_region_for_more) {
        assert_eq(memmap_plug_gpa(MIB(64)), MEMMAP_HOLE_END);
        assert_eq(memmap_plug_gpa(GIB(3)), MEMMAP_HOLE_END);
        assert_eq(memmap_plug_gpa(GIB(3) + MIB(2)), MEMMAP_HOLE_END + MIB(128));
        assert_eq(memmap_plug_gpa(GIB(32)), MEMMAP_HOLE_END + GIB(29));

        assert_ok(guest_mem_init(&mem, GIB(3) + MIB(2)));
        assert_eq(guest_mem_add_region(&mem, MEMMAP_HOLE_END, MIB(128)), -EINVAL);
        assert_eq(guest_mem_add_region(&mem, MIB(64), MIB(128)), -EINVAL);
        assert_eq(guest_mem_add_region(&mem, GIB(8), 0), -EINVAL);
        assert_eq(guest_mem_add_region(&mem, GIB(8), MIB(1)), -EINVAL);
        assert_eq(guest_mem_add_region(&mem, GIB(8) + 4096, MIB(2)), -EINVAL);
        assert_eq(guest_mem_add_region(&mem, UINT64_MAX & ~(MIB(2) - 1), MIB(2)), -EINVAL);
        assert_eq(mem.n_regions, 2);
        assert_ok(guest_mem_add_region(&mem, GIB(8), MIB(128)));
        assert_eq(guest_mem_add_region(&mem, GIB(16), MIB(128)), -EINVAL);
        assert_true(guest_mem_ptr(&mem, GIB(8), MIB(128)));
        assert_true(!guest_mem_ptr(&mem, GIB(8), MIB(128) + 1));
        assert_eq(touch(mem.regions[2].hva - 1), SIGSEGV);
        assert_eq(touch(mem.regions[2].hva + MIB(128)), SIGSEGV);
        guest_mem_done(&mem);
}

TEST(discarded_pages_read_as_zero_and_stay_mapped) {
        assert_ok(guest_mem_init(&mem, MIB(2)));
        uint8_t *p = guest_mem_ptr(&mem, 0, MIB(2));
        memset(p, 0x5a, 4 * 4096);
        assert_ok(guest_mem_discard(&mem, 4096, 8192));
        assert_true(p[4095] == 0x5a && p[4096] == 0 && p[3 * 4096 - 1] == 0 && p[3 * 4096] == 0x5a);
        p[4096] = 1;

        assert_ok(guest_mem_discard(&mem, 0, 0));
        assert_eq(guest_mem_discard(&mem, 1, 4096), -EINVAL);
        assert_eq(guest_mem_discard(&mem, 0, 1), -EINVAL);
        assert_eq(guest_mem_discard(&mem, MIB(2), 4096), -EFAULT);
        assert_eq(guest_mem_discard(&mem, MIB(2) - 4096, 8192), -EFAULT);
        assert_eq(guest_mem_discard(&mem, UINT64_MAX - 4095, 4096), -EFAULT);
        assert_eq(p[0], 0x5a);
        guest_mem_done(&mem);
}
