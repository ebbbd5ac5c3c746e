/* SPDX-License-Identifier: Apache-2.0 */
#include "fake-vm.h"
#include "test.h"
#include "vmm/msix.h"

#define VECTORS 3U

static Vm vm;
static Msix x;

static void make(void) {
        fake_vm_init(&vm, MIB(2));
        msix_init(&x, &vm, VECTORS);
        for (unsigned i = 0; i < VECTORS; i++) {
                msix_table_write(&x, i * 16, 4, 0xfee01000 + i * 4);
                msix_table_write(&x, i * 16 + 4, 4, 0);
                msix_table_write(&x, i * 16 + 8, 8, 0x50 + i);
        }
}

static void done(void) {
        msix_done(&x);
        fake_vm_done(&vm);
}

static uint64_t pending(void) {
        return msix_pending_read(&x, 0, 8);
}

TEST(delivers_address_and_data) {
        make();
        msix_set_control(&x, true, false);
        for (unsigned i = 0; i < VECTORS; i++) {
                msix_signal(&x, i);
                assert_eq(fake_msi_count, i + 1);
                assert_eq(fake_msi_last.address, 0xfee01000 + i * 4);
                assert_eq(fake_msi_last.data, 0x50 + i);
        }
        done();
}

TEST(vectors_out_of_range_are_nothing) {
        static const unsigned bad[] = { VECTORS, VECTORS + 1, 16, 31, 32, 64, 0xffff, UINT32_MAX };

        make();
        msix_set_control(&x, true, true);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                msix_signal(&x, bad[i]);
        assert_eq(fake_msi_count, 0);
        assert_eq(pending(), 0);
        done();
}

TEST(off_means_dropped) {
        make();
        msix_signal(&x, 0);
        msix_set_control(&x, true, false);
        assert_eq(fake_msi_count, 0);
        assert_eq(pending(), 0);
        done();
}

TEST(masked_means_pending) {
        make();
        msix_set_control(&x, true, false);
        msix_table_write(&x, 16 + 12, 4, 1);
        msix_signal(&x, 1);
        msix_signal(&x, 1);
        assert_eq(fake_msi_count, 0);
        assert_eq(pending(), 2);
        msix_signal(&x, 0);
        assert_eq(fake_msi_count, 1);
        msix_table_write(&x, 16 + 12, 4, 0);
        assert_eq(fake_msi_count, 2);
        assert_eq(fake_msi_last.data, 0x51);
        assert_eq(pending(), 0);
        msix_table_write(&x, 16 + 12, 4, 0);
        assert_eq(fake_msi_count, 2);
        done();
}

TEST(function_mask) {
        make();
        msix_set_control(&x, true, true);
        msix_signal(&x, 0);
        msix_signal(&x, 2);
        assert_eq(fake_msi_count, 0);
        assert_eq(pending(), 5);
        assert_eq(msix_pending_read(&x, 0, 4), 5);
        /* The vector's own mask still holds when the function's goes. */
        msix_table_write(&x, 2 * 16 + 12, 4, 1);
        msix_set_control(&x, true, false);
        assert_eq(fake_msi_count, 1);
        assert_eq(pending(), 4);
        /* Off forgets. */
        msix_set_control(&x, false, false);
        msix_set_control(&x, true, false);
        msix_table_write(&x, 2 * 16 + 12, 4, 0);
        assert_eq(fake_msi_count, 1);
        done();
}

TEST(starts_masked) {
        fake_vm_init(&vm, MIB(2));
        msix_init(&x, &vm, VECTORS);
        msix_set_control(&x, true, false);
        msix_signal(&x, 0);
        assert_eq(fake_msi_count, 0);
        assert_eq(pending(), 1);
        done();
}

TEST(table_access) {
        make();
        assert_eq(msix_table_read(&x, 16, 4), 0xfee01004);
        assert_eq(msix_table_read(&x, 24, 8), 0x51);
        msix_table_write(&x, 0, 8, 0x1122334455667788);
        assert_eq(msix_table_read(&x, 0, 8), 0x1122334455667788 & ~3ULL);
        msix_table_write(&x, 12, 4, UINT32_MAX);
        assert_eq(msix_table_read(&x, 12, 4), 1);

        static const struct { uint64_t offset; unsigned len; } bad[] = {
                { 0, 1 }, { 0, 2 }, { 2, 4 }, { 4, 8 }, { 12, 8 }, { VECTORS * 16, 4 }, { VECTORS * 16, 8 }, { 0xffc, 4 },
                { 0xff8, 8 }, { UINT64_MAX - 3, 4 },
        };
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                Msix before = x;
                assert_eq(msix_table_read(&x, bad[i].offset, bad[i].len), UINT64_MAX);
                msix_table_write(&x, bad[i].offset, bad[i].len, 0x4242);
                assert_eq(memcmp(before.entries, x.entries, sizeof(x.entries)), 0);
        }
        assert_eq(msix_pending_read(&x, 4, 4), 0);
        assert_eq(msix_pending_read(&x, 8, 8), UINT64_MAX);
        assert_eq(msix_pending_read(&x, 0, 1), UINT64_MAX);
        done();
}

/* Whatever address the guest writes, KVM's refusal is its problem. */
TEST(refused_by_kvm) {
        make();
        fake_msi_result = -EINVAL;
        msix_set_control(&x, true, false);
        msix_signal(&x, 0);
        assert_eq(x.failed, 1);
        assert_eq(x.delivered, 0);
        done();
}
