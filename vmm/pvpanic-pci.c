/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/pvpanic-pci.h"

#define PVPANIC_EVENTS (PVPANIC_PANICKED | PVPANIC_CRASH_LOADED)

static uint64_t bar_read(PciFunction *f, uint64_t offset, unsigned len) {
        return offset == 0 && len == 1 ? PVPANIC_EVENTS : UINT64_MAX;
}

static void bar_write(PciFunction *f, uint64_t offset, unsigned len, uint64_t value) {
        Pvpanic *p = f->owner;
        uint8_t event = value & PVPANIC_EVENTS;

        if (offset == 0 && len == 1 && event != 0 && p->on_panic)
                p->on_panic(p->userdata, event);
}

void pvpanic_init(Pvpanic *p, uint64_t bar_gpa, void (*on_panic)(void *userdata, uint8_t event), void *userdata) {
        static const PciIdentity id = {
                .vendor = 0x1b36,
                .device = 0x0011,
                .revision = 1,
                .class_code = 0x088000, /* system peripheral, other */
                .subsystem_vendor = 0x1af4,
                .subsystem = 0x1100,
        };
        static const PciOps ops = { .bar_read = bar_read, .bar_write = bar_write };

        assert(p);

        *p = (Pvpanic) { .on_panic = on_panic, .userdata = userdata };
        pci_function_init(&p->pci, &id, &ops, p);
        pci_set_bar(&p->pci, bar_gpa, PVPANIC_BAR_BYTES);
}

void pvpanic_done(Pvpanic *p) {
        assert(p);
        pci_function_done(&p->pci);
}
