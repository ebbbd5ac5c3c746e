/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A Vm without KVM: RAM is real, messages are counted instead of delivered. Takes the place of
 * vmm/vm.c in a test program. */

#include "vmm/vm.h"

typedef struct FakeMsi {
        uint64_t address;
        uint32_t data;
} FakeMsi;

extern _Atomic unsigned fake_msi_count;
extern FakeMsi fake_msi_last;
extern int fake_msi_result; /* what vm_signal_msi() returns */

void fake_vm_init(Vm *vm, uint64_t mem_bytes);
/* Adds the region for memory that is plugged. */
void fake_vm_add_plug(Vm *vm, uint64_t bytes);
void fake_vm_done(Vm *vm);
