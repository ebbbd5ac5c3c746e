/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/kvm.h>
#include <sys/ioctl.h>

#include "vmm/memmap.h"
#include "vmm/vm.h"

/* GSIs that KVM keeps for a user-space IOAPIC. There is none, but 0 pins are refused. */
#define SPLIT_IRQCHIP_PINS 24U
/* Three pages that Intel hosts without "unrestricted guest" want, in the hole below 4 GiB. */
#define TSS_ADDRESS 0xfffbd000UL

/* Linux 6.11, not in the headers of Debian 12. KVM has it exactly where it has two-dimensional paging. */
#define CAP_PRE_FAULT_MEMORY 236UL

static int vm_enable(const Vm *vm, uint32_t cap, uint64_t arg) {
        struct kvm_enable_cap c = { .cap = cap, .args = { arg } };

        return ioctl(vm->fd, KVM_ENABLE_CAP, &c) < 0 ? -errno : 0;
}

static int vm_has(const Vm *vm, unsigned long cap) {
        int r = ioctl(vm->fd, KVM_CHECK_EXTENSION, cap);
        return r < 0 ? -errno : r;
}

static int vm_create(Vm *vm, ErrorText *e) {
        int version = ioctl(vm->kvm_fd, KVM_GET_API_VERSION, 0);
        if (version < 0)
                return error_set_errno(e, -errno, "KVM_GET_API_VERSION (is this /dev/kvm?)");
        if (version != KVM_API_VERSION)
                return error_set(e, -EPROTONOSUPPORT, "KVM API version %d, need %d", version,
                                 KVM_API_VERSION);

        vm->fd = ioctl(vm->kvm_fd, KVM_CREATE_VM, 0);
        if (vm->fd < 0)
                return error_set_errno(e, -errno, "KVM_CREATE_VM");
        return 0;
}

static int vm_set_memslot(Vm *vm, unsigned i, uint64_t bytes, ErrorText *e) {
        struct kvm_userspace_memory_region region = {
                .slot = i,
                .guest_phys_addr = vm->mem.regions[i].gpa,
                .memory_size = bytes,
                .userspace_addr = (uintptr_t) vm->mem.regions[i].hva,
        };

        if (ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &region) < 0)
                return error_set_errno(e, -errno, "KVM_SET_USER_MEMORY_REGION at 0x%llx, %llu MiB",
                                       region.guest_phys_addr, region.memory_size >> 20);
        return 0;
}

/* Before anything sits on an I/O bus: afterwards a memslot waits for a grace period, 6 ms on 6.18. */
static int vm_add_memslots(Vm *vm, ErrorText *e) {
        for (unsigned i = 0; i < vm->mem.n_regions; i++) {
                int r = vm_set_memslot(vm, i, vm->mem.regions[i].size, e);
                if (r < 0)
                        return r;
        }
        return 0;
}

int vm_memory_changed(Vm *vm, ErrorText *e) {
        assert(vm);

        if (vm_has(vm, CAP_PRE_FAULT_MEMORY) > 0)
                return 0;

        /* Without its slots KVM forgets all that it derived from their content. */
        for (unsigned i = 0; i < vm->mem.n_regions; i++) {
                int r = vm_set_memslot(vm, i, 0, e);
                if (r < 0)
                        return r;
        }
        return vm_add_memslots(vm, e);
}

int vm_xsave_bytes(const Vm *vm, uint32_t *ret, ErrorText *e) {
        assert(vm);
        assert(ret);

        int n = vm_has(vm, KVM_CAP_XSAVE2);
        if (n < (int) sizeof(struct kvm_xsave))
                return error_set(e, -EOPNOTSUPP, "KVM_CAP_XSAVE2 says %d", n);
        *ret = (uint32_t) n;
        return 0;
}

static int vm_add_irqchip(Vm *vm, ErrorText *e) {
        int r = vm_enable(vm, KVM_CAP_SPLIT_IRQCHIP, SPLIT_IRQCHIP_PINS);
        if (r < 0)
                return error_set_errno(e, r, "KVM_CAP_SPLIT_IRQCHIP");

        if (vm_has(vm, KVM_CAP_X2APIC_API) > 0) {
                r = vm_enable(vm, KVM_CAP_X2APIC_API,
                              KVM_X2APIC_API_USE_32BIT_IDS | KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK);
                if (r < 0)
                        return error_set_errno(e, r, "KVM_CAP_X2APIC_API");
        }
        return 0;
}

static int vm_tune(Vm *vm, ErrorText *e) {
        int r;

        /* A waiting guest must not spin on the host's CPU. */
        if (vm_has(vm, KVM_CAP_HALT_POLL) > 0) {
                r = vm_enable(vm, KVM_CAP_HALT_POLL, 0);
                if (r < 0)
                        return error_set_errno(e, r, "KVM_CAP_HALT_POLL");
        }

        /* The PMU is a side channel; it can be taken away only before the first vCPU. */
        r = vm_has(vm, KVM_CAP_PMU_CAPABILITY);
        if (r > 0 && (r & KVM_PMU_CAP_DISABLE)) {
                r = vm_enable(vm, KVM_CAP_PMU_CAPABILITY, KVM_PMU_CAP_DISABLE);
                if (r < 0)
                        return error_set_errno(e, r, "KVM_CAP_PMU_CAPABILITY");
        }
        return 0;
}

static int vm_map_memory(Vm *vm, uint64_t mem_bytes, uint64_t plug_bytes, ErrorText *e) {
        int r = guest_mem_init(&vm->mem, mem_bytes);
        if (r < 0)
                return error_set_errno(e, r, "mapping %llu MiB of guest memory",
                                       (unsigned long long) (mem_bytes >> 20));
        if (plug_bytes == 0)
                return 0;

        vm->plug_gpa = memmap_plug_gpa(mem_bytes);
        vm->plug_bytes = plug_bytes;
        r = guest_mem_add_region(&vm->mem, vm->plug_gpa, plug_bytes);
        return r < 0 ? error_set_errno(e, r, "mapping %llu MiB of memory to plug",
                                       (unsigned long long) (plug_bytes >> 20)) : 0;
}

static int vm_setup(Vm *vm, uint64_t mem_bytes, uint64_t plug_bytes, ErrorText *e) {
        int r = vm_create(vm, e);
        if (r < 0)
                return r;

        r = vm_map_memory(vm, mem_bytes, plug_bytes, e);
        if (r < 0)
                return r;

        if (ioctl(vm->fd, KVM_SET_TSS_ADDR, TSS_ADDRESS) < 0)
                return error_set_errno(e, -errno, "KVM_SET_TSS_ADDR");

        r = vm_add_memslots(vm, e);
        if (r < 0)
                return r;
        r = vm_add_irqchip(vm, e);
        if (r < 0)
                return r;
        return vm_tune(vm, e);
}

int vm_init(Vm *vm, int kvm_fd, uint64_t mem_bytes, uint64_t plug_bytes, ErrorText *e) {
        assert(vm);
        assert(kvm_fd >= 0);

        *vm = (Vm) { .kvm_fd = kvm_fd, .fd = -EBADF };

        int r = vm_setup(vm, mem_bytes, plug_bytes, e);
        if (r < 0)
                vm_done(vm);
        return r;
}

void vm_done(Vm *vm) {
        assert(vm);

        vm->fd = safe_close(vm->fd);
        guest_mem_done(&vm->mem);
}

int vm_get_clock(const Vm *vm, uint64_t *ret, ErrorText *e) {
        struct kvm_clock_data clock = {};

        assert(vm);
        assert(ret);

        if (ioctl(vm->fd, KVM_GET_CLOCK, &clock) < 0)
                return error_set_errno(e, -errno, "KVM_GET_CLOCK");
        *ret = clock.clock;
        return 0;
}

/* Without KVM_CLOCK_REALTIME: the guest's monotonic time doesn't count what passed meanwhile. */
int vm_set_clock(Vm *vm, uint64_t nsec, ErrorText *e) {
        struct kvm_clock_data clock = { .clock = nsec };

        assert(vm);

        if (ioctl(vm->fd, KVM_SET_CLOCK, &clock) < 0)
                return error_set_errno(e, -errno, "KVM_SET_CLOCK");
        return 0;
}

int vm_signal_msi(Vm *vm, uint64_t address, uint32_t data) {
        assert(vm);

        struct kvm_msi msi = {
                .address_lo = (uint32_t) address,
                .address_hi = (uint32_t) (address >> 32),
                .data = data,
        };

        /* 0 = the guest blocked it: its own affair. */
        return ioctl(vm->fd, KVM_SIGNAL_MSI, &msi) < 0 ? -errno : 0;
}

int vm_add_ioeventfd(Vm *vm, uint64_t gpa, unsigned len, int fd) {
        assert(vm);

        struct kvm_ioeventfd io = { .addr = gpa, .len = len, .fd = fd };
        return ioctl(vm->fd, KVM_IOEVENTFD, &io) < 0 ? -errno : 0;
}
