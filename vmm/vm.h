/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The KVM virtual machine: its fd, its RAM as memslots, and the two ways a device reaches into it.
 *
 * Made once by the machine in the order that keeps KVM fast: VM, memslots, split irqchip, vCPUs,
 * ioeventfds. Everything here may be called from any thread. */

#include "vmm/error.h"
#include "vmm/guest-mem.h"

typedef struct Vm {
        int kvm_fd;
        int fd;
        GuestMem mem;
        uint64_t plug_gpa;        /* its last region, when plug_bytes > 0 */
        uint64_t plug_bytes;
} Vm;

/* kvm_fd is borrowed. plug_bytes: of the region for memory that is plugged later; 0: none.
 * On error vm is empty. */
int vm_init(Vm *vm, int kvm_fd, uint64_t mem_bytes, uint64_t plug_bytes, ErrorText *e);
void vm_done(Vm *vm);

/* After other memory was put beneath the guest while it was stopped. Where KVM shadows the guest's page
 * tables (no EPT, no NPT) what it knows of them is from before. */
int vm_memory_changed(Vm *vm, ErrorText *e);
/* Bytes of KVM_GET_XSAVE2. */
int vm_xsave_bytes(const Vm *vm, uint32_t *ret, ErrorText *e);

/* kvm-clock, in nanoseconds. */
int vm_get_clock(const Vm *vm, uint64_t *ret, ErrorText *e);
int vm_set_clock(Vm *vm, uint64_t nsec, ErrorText *e);

/* Delivers an MSI now (KVM_SIGNAL_MSI). */
int vm_signal_msi(Vm *vm, uint64_t address, uint32_t data);
/* Writes of any length to gpa (len 0: KVM's wildcard) signal fd without leaving the kernel. */
int vm_add_ioeventfd(Vm *vm, uint64_t gpa, unsigned len, int fd);
