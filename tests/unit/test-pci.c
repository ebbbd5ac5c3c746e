/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/pci_regs.h>

#include "test.h"
#include "vmm/pci.h"

#define BAR_GPA 0xc0100000U
#define BAR_BYTES 0x8000U

static PciFunction f;
static unsigned read_hooks, written_hooks;

static uint64_t bar_read(PciFunction *p, uint64_t offset, unsigned len) {
        return 0;
}

static void bar_write(PciFunction *p, uint64_t offset, unsigned len, uint64_t value) {
}

static void capability_read(PciFunction *p, unsigned offset, unsigned len) {
        read_hooks++;
}

static void capability_written(PciFunction *p, unsigned offset, unsigned len) {
        written_hooks++;
}

static void make(void) {
        static const PciIdentity id = {
                .vendor = 0x1af4, .device = 0x1053, .revision = 1, .class_code = 0x078000,
                .subsystem_vendor = 0x1af4, .subsystem = 0x53,
        };
        static const PciOps ops = {
                .bar_read = bar_read, .bar_write = bar_write,
                .capability_read = capability_read, .capability_written = capability_written,
        };

        pci_function_init(&f, &id, &ops, NULL);
        pci_set_bar(&f, BAR_GPA, BAR_BYTES);
        read_hooks = written_hooks = 0;
}

TEST(identity) {
        make();
        assert_eq(pci_config_read(&f, 0, 4), 0x10531af4);
        assert_eq(pci_config_read(&f, 0, 2), 0x1af4);
        assert_eq(pci_config_read(&f, 1, 1), 0x1a);
        assert_eq(pci_config_read(&f, 8, 4), 0x07800001);
        assert_eq(pci_config_read(&f, PCI_HEADER_TYPE, 1), 0);
        assert_eq(pci_config_read(&f, PCI_SUBSYSTEM_VENDOR_ID, 4), 0x531af4);
        assert_eq(pci_config_read(&f, PCI_INTERRUPT_PIN, 1), 0);
        /* Extended space: there, empty, and no way to write over anything. */
        assert_eq(pci_config_read(&f, 0x100, 4), 0);
        assert_eq(pci_config_read(&f, 0xffc, 4), 0);
        pci_config_write(&f, 0x100, 4, UINT32_MAX);
        pci_config_write(&f, 0xffc, 4, UINT32_MAX);
        assert_eq(pci_config_read(&f, 0xffc, 4), 0);
        pci_function_done(&f);
}

TEST(bar_answers_sizing_and_never_moves) {
        make();
        assert_eq(pci_config_read(&f, PCI_BASE_ADDRESS_0, 4), BAR_GPA);
        pci_config_write(&f, PCI_BASE_ADDRESS_0, 4, UINT32_MAX);
        assert_eq(pci_config_read(&f, PCI_BASE_ADDRESS_0, 4), ~(BAR_BYTES - 1));
        assert_eq(pci_config_read(&f, PCI_BASE_ADDRESS_0 + 2, 2), 0xffff);
        pci_config_write(&f, PCI_BASE_ADDRESS_0, 4, BAR_GPA);
        assert_eq(pci_config_read(&f, PCI_BASE_ADDRESS_0, 4), BAR_GPA);

        static const uint32_t elsewhere[] = { 0, 0x1000, 0xfee00000, 0xd0000000, 0x80000000 };
        for (size_t i = 0; i < ELEMENTSOF(elsewhere); i++) {
                pci_config_write(&f, PCI_BASE_ADDRESS_0, 4, elsewhere[i]);
                assert_eq(pci_config_read(&f, PCI_BASE_ADDRESS_0, 4), BAR_GPA);
                assert_eq(f.bar_gpa, BAR_GPA);
        }
        /* Ones in a part of it are not a sizing. */
        pci_config_write(&f, PCI_BASE_ADDRESS_0, 2, 0xffff);
        pci_config_write(&f, PCI_BASE_ADDRESS_0 + 2, 2, 0xffff);
        assert_eq(pci_config_read(&f, PCI_BASE_ADDRESS_0, 4), BAR_GPA);

        /* The others aren't there, nor is a ROM. */
        for (unsigned bar = PCI_BASE_ADDRESS_1; bar <= PCI_BASE_ADDRESS_5; bar += 4) {
                pci_config_write(&f, bar, 4, UINT32_MAX);
                assert_eq(pci_config_read(&f, bar, 4), 0);
        }
        pci_config_write(&f, PCI_ROM_ADDRESS, 4, UINT32_MAX);
        assert_eq(pci_config_read(&f, PCI_ROM_ADDRESS, 4), 0);
        pci_function_done(&f);
}

TEST(only_some_bits_are_the_drivers) {
        make();
        assert_true(!pci_memory_enabled(&f));
        pci_config_write(&f, PCI_COMMAND, 4, UINT32_MAX);
        assert_eq(pci_config_read(&f, PCI_COMMAND, 2),
                  PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE);
        assert_true(pci_memory_enabled(&f));
        assert_eq(pci_config_read(&f, PCI_STATUS, 2), 0);
        pci_config_write(&f, PCI_COMMAND, 1, 0);
        assert_true(!pci_memory_enabled(&f));

        uint8_t before[PCI_CONFIG_BYTES];
        memcpy(before, f.config, sizeof(before));
        for (unsigned at = 0; at < PCI_CONFIG_BYTES; at += 4)
                if (at != PCI_COMMAND && at != PCI_BASE_ADDRESS_0 && at != PCI_INTERRUPT_LINE)
                        pci_config_write(&f, at, 4, UINT32_MAX);
        assert_eq(memcmp(before, f.config, sizeof(before)), 0);
        pci_config_write(&f, PCI_INTERRUPT_LINE, 1, 0x55);
        assert_eq(pci_config_read(&f, PCI_INTERRUPT_LINE, 2), 0x55);
        pci_function_done(&f);
}

TEST(capability_list) {
        uint8_t body[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
        uint16_t mask = 0xc000;

        make();
        assert_eq(pci_config_read(&f, PCI_STATUS, 2) & PCI_STATUS_CAP_LIST, 0);
        unsigned a = pci_add_capability(&f, 9, body, sizeof(body));
        unsigned b = pci_add_capability(&f, 0x11, body, 4);
        pci_set_writable(&f, b + 2, &mask, sizeof(mask));

        assert_true(pci_config_read(&f, PCI_STATUS, 2) & PCI_STATUS_CAP_LIST);
        assert_eq(pci_config_read(&f, PCI_CAPABILITY_LIST, 1), a);
        assert_eq(pci_config_read(&f, a, 1), 9);
        assert_eq(pci_config_read(&f, a + 1, 1), b);
        assert_eq(pci_config_read(&f, b + 1, 1), 0);
        assert_eq(a % 4, 0);
        assert_eq(b % 4, 0);
        assert_true(b >= a + 2 + sizeof(body));

        pci_config_write(&f, b + 2, 2, 0xffff);
        assert_eq(pci_config_read(&f, b + 2, 2), 0xc000 | 2 << 8 | 1);
        assert_eq(written_hooks, 1);
        assert_true(read_hooks > 0);
        pci_function_done(&f);
}
