/* SPDX-License-Identifier: Apache-2.0 */

/* cube-kvm-probe: what this host's KVM can do, as one line for cubed's check.
 *
 *      version=12 missing=CAP,CAP nsec=0.35
 *      error=why KVM can't be used at all
 *
 * nsec is the time of one instruction of a guest in ring 0. Hardware takes about one; a PVM host,
 * whose kernel emulates ring 0, about a thousand, and no Linux guest ever boots there. */

#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include "base/macros.h"

/* A short and a long run: their difference has no share of what a first entry costs. The best of
 * a few, since interrupts of a nested host take milliseconds. */
#define LOOPS_SHORT 1000U
#define LOOPS_LONG 21000U
#define ATTEMPTS 4U
#define ENTRY 0x1000U
#define MEMORY 0x2000U
#define RUN_LIMIT_SEC 10U

/* dec %ecx; jnz back to the dec; out %al, $0x80 */
static const uint8_t code[] = { 0x49, 0x75, 0xfd, 0xe6, 0x80 };

static const struct {
        int cap;
        const char *name;
} needed[] = {
        { KVM_CAP_SPLIT_IRQCHIP, "split-irqchip" },
        { KVM_CAP_IRQFD, "irqfd" },
        { KVM_CAP_IOEVENTFD, "ioeventfd" },
        { KVM_CAP_IOEVENTFD_ANY_LENGTH, "ioeventfd-any-length" },
        { KVM_CAP_SIGNAL_MSI, "signal-msi" },
        { KVM_CAP_IMMEDIATE_EXIT, "immediate-exit" },
        { KVM_CAP_X2APIC_API, "x2apic-api" },
        { KVM_CAP_TSC_DEADLINE_TIMER, "tsc-deadline-timer" },
        { KVM_CAP_USER_MEMORY, "user-memory" },
};

typedef struct Probe {
        int kvm, vm, cpu;
        struct kvm_run *run;
} Probe;

static int fail(const char *what) {
        printf("error=%s: %s\n", what, strerror(errno));
        return -1;
}

static int make_memory(const Probe *p) {
        uint8_t *memory = mmap(NULL, MEMORY, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
                return fail("memory for a guest");

        memcpy(memory + ENTRY, code, sizeof(code));
        struct kvm_userspace_memory_region region = { .memory_size = MEMORY, .userspace_addr = (uintptr_t) memory };
        return ioctl(p->vm, KVM_SET_USER_MEMORY_REGION, &region) < 0 ? fail("KVM_SET_USER_MEMORY_REGION") : 0;
}

static int make_cpu(Probe *p) {
        int size = ioctl(p->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);

        p->cpu = ioctl(p->vm, KVM_CREATE_VCPU, 0);
        if (p->cpu < 0 || size < (int) sizeof(struct kvm_run))
                return fail("KVM_CREATE_VCPU");
        p->run = mmap(NULL, (size_t) size, PROT_READ|PROT_WRITE, MAP_SHARED, p->cpu, 0);
        return p->run == MAP_FAILED ? fail("memory of a vCPU") : 0;
}

/* 32-bit protected mode, flat, no paging. */
static int set_segments(const Probe *p) {
        struct kvm_segment data = {
                .limit = 0xffffffff, .selector = 0x10, .type = 3, .present = 1, .db = 1, .s = 1, .g = 1,
        };
        struct kvm_sregs sregs;

        if (ioctl(p->cpu, KVM_GET_SREGS, &sregs) < 0)
                return fail("KVM_GET_SREGS");
        sregs.ds = sregs.es = sregs.ss = sregs.fs = sregs.gs = sregs.cs = data;
        sregs.cs.selector = 8;
        sregs.cs.type = 11;
        sregs.cr0 |= 1;
        return ioctl(p->cpu, KVM_SET_SREGS, &sregs) < 0 ? fail("KVM_SET_SREGS") : 0;
}

static int run_loop(const Probe *p, uint32_t loops, double *ret_nsec) {
        struct kvm_regs regs = { .rip = ENTRY, .rflags = 2, .rcx = loops };
        struct timespec a, b;

        if (ioctl(p->cpu, KVM_SET_REGS, &regs) < 0)
                return fail("KVM_SET_REGS");
        (void) clock_gettime(CLOCK_MONOTONIC, &a);
        if (ioctl(p->cpu, KVM_RUN, 0) < 0)
                return fail("KVM_RUN");
        (void) clock_gettime(CLOCK_MONOTONIC, &b);
        if (p->run->exit_reason != KVM_EXIT_IO) {
                printf("error=a guest of five bytes ended with KVM exit reason %u\n", p->run->exit_reason);
                return -1;
        }
        *ret_nsec = (double) (b.tv_sec - a.tv_sec) * 1e9 + (double) (b.tv_nsec - a.tv_nsec);
        return 0;
}

/* Nanoseconds an instruction. */
static int measure(const Probe *p, double *ret) {
        double best_short = 1e18, best_long = 1e18, nsec = 0;

        /* A guest that never comes back ends the probe by the alarm, which is an answer too. */
        (void) alarm(RUN_LIMIT_SEC);
        for (unsigned i = 0; i < ATTEMPTS; i++) {
                if (run_loop(p, LOOPS_SHORT, &nsec) < 0)
                        return -1;
                best_short = MIN(best_short, nsec);
                if (run_loop(p, LOOPS_LONG, &nsec) < 0)
                        return -1;
                best_long = MIN(best_long, nsec);
        }
        *ret = MAX(best_long - best_short, 0.0) / (2.0 * (LOOPS_LONG - LOOPS_SHORT));
        return 0;
}

static void print_missing(const Probe *p) {
        const char *comma = "";

        printf("missing=");
        for (size_t i = 0; i < ELEMENTSOF(needed); i++)
                if (ioctl(p->vm, KVM_CHECK_EXTENSION, needed[i].cap) <= 0 &&
                    ioctl(p->kvm, KVM_CHECK_EXTENSION, needed[i].cap) <= 0) {
                        printf("%s%s", comma, needed[i].name);
                        comma = ",";
                }
}

int main(void) {
        Probe p = {};
        double nsec = 0;

        p.kvm = open("/dev/kvm", O_RDWR|O_CLOEXEC);
        if (p.kvm < 0)
                return fail("/dev/kvm") < 0;
        int version = ioctl(p.kvm, KVM_GET_API_VERSION, 0);
        if (version != KVM_API_VERSION) {
                printf("error=/dev/kvm has API version %d, not %d\n", version, KVM_API_VERSION);
                return EXIT_FAILURE;
        }
        p.vm = ioctl(p.kvm, KVM_CREATE_VM, 0);
        if (p.vm < 0)
                return fail("KVM_CREATE_VM") < 0;
        if (make_memory(&p) < 0 || make_cpu(&p) < 0 || set_segments(&p) < 0 || measure(&p, &nsec) < 0)
                return EXIT_FAILURE;
        printf("version=%d ", version);
        print_missing(&p);
        printf(" nsec=%.2f\n", nsec);
        return EXIT_SUCCESS;
}
