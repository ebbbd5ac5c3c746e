/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The pvpanic PCI device (QEMU docs/specs/pvpanic): one byte of MMIO by which a guest's kernel says
 * that it has panicked, before it resets or hangs.
 *
 * Reading gives the events we understand, writing reports one. No state, no thread. Owned by devices.c. */

#include "vmm/pci.h"

#define PVPANIC_PANICKED 0x1U
#define PVPANIC_CRASH_LOADED 0x2U
#define PVPANIC_BAR_BYTES 0x1000U

typedef struct Pvpanic {
        PciFunction pci;
        /* On the vCPU's thread, with the function's lock held. */
        void (*on_panic)(void *userdata, uint8_t event);
        void *userdata;
} Pvpanic;

void pvpanic_init(Pvpanic *p, uint64_t bar_gpa, void (*on_panic)(void *userdata, uint8_t event), void *userdata);
void pvpanic_done(Pvpanic *p);
