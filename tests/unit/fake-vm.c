/* SPDX-License-Identifier: Apache-2.0 */
#include "fake-vm.h"
#include "vmm/memmap.h"

_Atomic unsigned fake_msi_count;
FakeMsi fake_msi_last;
int fake_msi_result;

void fake_vm_init(Vm *vm, uint64_t mem_bytes) {
        *vm = (Vm) { .kvm_fd = -EBADF, .fd = -EBADF };
        if (guest_mem_init(&vm->mem, mem_bytes) < 0)
                abort();
        fake_msi_count = 0;
        fake_msi_last = (FakeMsi) {};
        fake_msi_result = 0;
}

void fake_vm_add_plug(Vm *vm, uint64_t bytes) {
        vm->plug_gpa = memmap_plug_gpa(0);
        vm->plug_bytes = bytes;
        if (guest_mem_add_region(&vm->mem, vm->plug_gpa, bytes) < 0)
                abort();
}

void fake_vm_done(Vm *vm) {
        guest_mem_done(&vm->mem);
}

int vm_signal_msi(Vm *vm, uint64_t address, uint32_t data) {
        fake_msi_count++;
        fake_msi_last = (FakeMsi) { .address = address, .data = data };
        return fake_msi_result;
}

int vm_add_ioeventfd(Vm *vm, uint64_t gpa, unsigned len, int fd) {
        return 0;
}
