/* SPDX-License-Identifier: Apache-2.0 */
/* Can this machine's /dev/kvm run a kernel? Runs a loop in ring 0 of a guest and times it. Hardware takes about
 * a nanosecond an instruction; a PVM host, whose kernel emulates ring 0, about a microsecond, and misses some
 * instructions.
 *
 * Prints the nanoseconds an instruction takes. Exit status: 0 ran, 1 no usable /dev/kvm. */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LOOPS 50000
#define ENTRY 0x1000

static const uint8_t code[] = {
        0xb9, LOOPS & 0xff, LOOPS >> 8 & 0xff, LOOPS >> 16, 0, /* mov $LOOPS, %ecx */
        0x49,                                                  /* dec %ecx */
        0x75, 0xfd,                                            /* jnz back to the dec */
        0xe6, 0x80,                                            /* out %al, $0x80 */
};

static double now(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double) ts.tv_sec * 1e9 + (double) ts.tv_nsec;
}

static int fail(const char *what) {
        perror(what);
        return 1;
}

int main(void) {
        int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
        if (kvm < 0)
                return fail("/dev/kvm");

        int vm = ioctl(kvm, KVM_CREATE_VM, 0);
        if (vm < 0)
                return fail("KVM_CREATE_VM");

        uint8_t *memory = mmap(NULL, 0x2000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
                return fail("mmap");
        memcpy(memory + ENTRY, code, sizeof(code));

        struct kvm_userspace_memory_region region = {
                .memory_size = 0x2000, .userspace_addr = (uintptr_t) memory,
        };
        if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0)
                return fail("KVM_SET_USER_MEMORY_REGION");

        int cpu = ioctl(vm, KVM_CREATE_VCPU, 0);
        int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
        if (cpu < 0 || size < 0)
                return fail("KVM_CREATE_VCPU");
        struct kvm_run *run = mmap(NULL, (size_t) size, PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0);
        if (run == MAP_FAILED)
                return fail("mmap");

        /* 32-bit protected mode, flat, no paging */
        struct kvm_sregs sregs;
        if (ioctl(cpu, KVM_GET_SREGS, &sregs) < 0)
                return fail("KVM_GET_SREGS");
        struct kvm_segment data = {
                .limit = 0xffffffff, .selector = 0x10, .type = 3, .present = 1, .db = 1, .s = 1, .g = 1,
        };
        sregs.ds = sregs.es = sregs.ss = sregs.fs = sregs.gs = data;
        sregs.cs = data;
        sregs.cs.selector = 8;
        sregs.cs.type = 11;
        sregs.cr0 |= 1;
        if (ioctl(cpu, KVM_SET_SREGS, &sregs) < 0)
                return fail("KVM_SET_SREGS");
        struct kvm_regs regs = { .rip = ENTRY, .rflags = 2 };
        if (ioctl(cpu, KVM_SET_REGS, &regs) < 0)
                return fail("KVM_SET_REGS");

        alarm(20); /* one that never comes back is no better than none */
        double start = now();
        if (ioctl(cpu, KVM_RUN, 0) < 0)
                return fail("KVM_RUN");
        double taken = now() - start;
        if (run->exit_reason != KVM_EXIT_IO) {
                fprintf(stderr, "KVM_RUN ended with exit reason %u\n", run->exit_reason);
                return 1;
        }
        printf("%.1f\n", taken / (2.0 * LOOPS));
        return 0;
}
