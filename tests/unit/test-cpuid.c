/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>

#include "base/vmm-proto.h"
#include "test.h"
#include "vmm/cpuid.h"

#define ALL UINT32_MAX

static CpuidTable table;

static struct kvm_cpuid_entry2 *find(uint32_t function, uint32_t index) {
        for (uint32_t i = 0; i < table.head.nent; i++)
                if (table.entries[i].function == function && table.entries[i].index == index)
                        return &table.entries[i];
        test_stop(TEST_FAILED, __LINE__, "no leaf 0x%x.%u", function, index);
}

static void add(uint32_t function, uint32_t index, uint32_t eax, uint32_t ebx, uint32_t ecx, uint32_t edx) {
        table.entries[table.head.nent++] = (struct kvm_cpuid_entry2) {
                .function = function, .index = index, .eax = eax, .ebx = ebx, .ecx = ecx, .edx = edx,
        };
}

/* A CPU that can do everything. */
static void make_table(void) {
        memset(&table, 0, sizeof(table));
        add(0x1, 0, 0x000906ea, 0x12340800, ALL & ~(1u << 24), ALL);
        add(0x4, 0, 0xfc004121, 0, 0, 0);
        add(0x4, 2, 0xfc01c143, 0, 0, 0);
        add(0x4, 3, 0xfc03c163, 0, 0, 0);
        add(0x4, 4, 0, 0, 0, 0);
        add(0x7, 0, 1, ALL, ALL, ALL);
        add(0x7, 1, ALL, 0, 0, ALL);
        add(0xa, 0, 0x07300404, 0, 0, 0x603);
        add(0xb, 0, 1, 2, 0x100, 99);
        add(0xb, 1, 4, 16, 0x201, 99);
        add(0xd, 0, 0x000602e7, 0x240, 0x2b00, 0);
        add(0xd, 1, 0x1f, 0, 0, 0);
        add(0xd, 2, 0x100, 0x240, 0, 0);
        add(0xd, 5, 0x40, 0x440, 0, 0);
        add(0xd, 6, 0x200, 0x480, 0, 0);
        add(0xd, 7, 0x400, 0x680, 0, 0);
        add(0xd, 9, 8, 0xa80, 0, 0);
        add(0xd, 11, 0x1000, 0x8000, 1, 0);
        add(0xd, 17, 0x40, 0xac0, 2, 0);
        add(0xd, 18, 0x2000, 0xb00, 6, 0);
        add(0x1d, 0, 1, 0, 0, 0);
        add(0x1f, 0, 1, 2, 0x100, 99);
        add(0x40000000, 0, 0x40000001, 0x4b4d564b, 0x564b4d56, 0x4d);
        add(0x40000001, 0, ALL, 0, 0, 0);
        add(0x80000001, 0, 0, 0, ALL, ALL);
        add(0x80000008, 0, 0x3030, 0, 0, 0);
        add(0x8000000a, 0, 1, 8, 0, ALL);
        add(0x8000001d, 3, 0x3c163, 0, 0, 0);
        add(0x8000001e, 0, 99, 0x1ff, 7, 0);
}

TEST(identity_and_topology) {
        for (unsigned n = 1; n <= 16; n++)
                for (unsigned i = 0; i < n; i++) {
                        make_table();
                        cpuid_normalise(&table, i, n, 0);

                        struct kvm_cpuid_entry2 *e = find(1, 0);
                        assert_eq(e->ebx >> 24, i);
                        assert_eq(e->ebx >> 16 & 0xff, n);
                        assert_eq(e->ebx & 0xffff, 0x0800);
                        assert_eq(e->edx >> 28 & 1, n > 1);

                        assert_eq(find(0xb, 0)->edx, i);
                        assert_eq(find(0xb, 0)->ebx, 1);
                        assert_eq(find(0xb, 0)->ecx, 0x100);
                        assert_eq(find(0xb, 1)->edx, i);
                        assert_eq(find(0xb, 1)->ebx, n);
                        assert_eq(find(0xb, 1)->ecx, 0x201);
                        assert_true(1u << find(0xb, 1)->eax >= n);
                        assert_eq(find(0x1f, 0)->eax, 0);

                        assert_eq(find(4, 0)->eax >> 26, n - 1);
                        assert_eq(find(4, 0)->eax >> 14 & 0xfff, 0);
                        assert_eq(find(4, 3)->eax >> 14 & 0xfff, n - 1);
                        assert_eq(find(4, 3)->eax & 0x3fff, 0x163);
                        assert_eq(find(4, 4)->eax, 0);

                        assert_eq(find(0x80000008, 0)->ecx & 0xff, n - 1);
                        assert_eq(find(0x8000001d, 3)->eax >> 14 & 0xfff, n - 1);
                        assert_eq(find(0x8000001e, 0)->eax, i);
                        assert_eq(find(0x8000001e, 0)->ebx, i);
                }
}

TEST(what_every_guest_has) {
        make_table();
        cpuid_normalise(&table, 0, 1, 0);
        assert_true(find(1, 0)->ecx & 1u << 24); /* TSC deadline, which 6.1 does not list */
        assert_true(find(1, 0)->ecx & 1u << 31);
        assert_true(find(1, 0)->ecx & 1u << 21);
        assert_true(find(1, 0)->ecx & 1u << 28); /* AVX */
        assert_eq(find(0x40000000, 0)->ebx, 0x4b4d564b);
}

TEST(what_no_guest_has) {
        make_table();
        cpuid_normalise(&table, 0, 2, 0);

        assert_eq(find(1, 0)->ecx & (1u << 3 | 1u << 5 | 1u << 6 | 1u << 15), 0);
        assert_eq(find(7, 0)->ebx & (1u << 2 | 1u << 4 | 1u << 11), 0);
        assert_eq(find(7, 0)->ecx & (1u << 3 | 1u << 4), 0);
        assert_eq(find(7, 0)->edx & (1u << 22 | 1u << 24 | 1u << 25), 0);
        assert_eq(find(0xa, 0)->eax, 0);
        assert_eq(find(0x1d, 0)->eax, 0);
        assert_eq(find(0x80000001, 0)->ecx & (1u << 2 | 1u << 10 | 1u << 29), 0);
        assert_eq(find(0x8000000a, 0)->edx, 0);

        /* asynchronous page faults, steal time */
        assert_eq(find(0x40000001, 0)->eax & (1u << 4 | 1u << 5 | 1u << 10 | 1u << 14), 0);
        assert_true(find(0x40000001, 0)->eax & 1u << 24);
        assert_true(find(0x40000001, 0)->eax & 1u << 11);
        make_table();
        cpuid_normalise(&table, 0, 1, 0);
        assert_eq(find(0x40000001, 0)->eax & 1u << 11, 0);
}

TEST(xsave_without_amx_and_pkru) {
        make_table();
        cpuid_normalise(&table, 0, 1, 0);
        assert_eq(find(0xd, 0)->eax, 0xe7);
        assert_eq(find(0xd, 0)->ecx, 0xa80); /* the end of component 7; 11 is a supervisor's */
        assert_eq(find(0xd, 1)->eax, 0x0f);
        assert_eq(find(0xd, 9)->eax, 0);
        assert_eq(find(0xd, 18)->eax, 0);
        assert_eq(find(0xd, 7)->eax, 0x400);
}

TEST(xsave_hidden) {
        make_table();
        cpuid_normalise(&table, 0, 1, VMM_CPUID_HIDE_XSAVE);
        assert_eq(find(1, 0)->ecx & (1u << 12 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 29), 0);
        assert_true(find(1, 0)->ecx & 1u << 20); /* SSE 4.2 stays */
        assert_eq(find(7, 0)->ebx & (1u << 5 | 1u << 16 | 1u << 31), 0);
        assert_true(find(7, 0)->ebx & 1u << 8); /* BMI2 */
        assert_eq(find(7, 0)->ecx & (1u << 1 | 1u << 9 | 1u << 10), 0);
        assert_eq(find(7, 1)->eax & (1u << 4 | 1u << 5), 0);
        for (uint32_t i = 0; i < table.head.nent; i++) {
                const struct kvm_cpuid_entry2 *leaf = &table.entries[i];

                if (leaf->function == 0xd)
                        assert_eq(leaf->eax | leaf->ebx | leaf->ecx | leaf->edx, 0);
        }
        assert_eq(find(0x80000001, 0)->ecx & (1u << 11 | 1u << 16), 0);
}

TEST(this_host) {
        _cleanup_close_ int kvm = open("/dev/kvm", O_RDWR|O_CLOEXEC);
        ErrorText e = {};

        if (kvm < 0)
                test_skip("no /dev/kvm");
        assert_ok(cpuid_load(kvm, &table, &e));
        assert_true(table.head.nent > 0);
        cpuid_normalise(&table, 3, 4, 0);
        assert_eq(find(1, 0)->ebx >> 24, 3);
        assert_eq(find(1, 0)->ecx & 1u << 5, 0);
}
