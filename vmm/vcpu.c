/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include "vmm/seccomp.h"
#include "vmm/vcpu.h"

/* Interrupts KVM_RUN. Not SIGRTMIN+4, which is systemd's way to say "power off". */
#define SIGNAL_KICK SIGRTMIN

#ifdef VMM_SANITIZED
#define STACK_BYTES MIB(2)
#else
#define STACK_BYTES KIB(128)
#endif

#define CR0_PE (1U << 0)
#define CR0_ET (1U << 4)
#define RFLAGS_FIXED 2U
#define SELECTOR_CODE 0x08U
#define SELECTOR_DATA 0x10U
#define SELECTOR_TASK 0x18U
#define SEGMENT_CODE 0x0bU         /* execute, read, accessed */
#define SEGMENT_DATA 0x03U         /* read, write, accessed */
#define SEGMENT_TASK_32_BUSY 0x0bU

#define MSR_MTRR_DEF_TYPE 0x2ffU
#define MTRR_ENABLED_WRITE_BACK 0x806U

typedef enum VcpuRequest {
        REQUEST_PARK,
        REQUEST_RUN,
        REQUEST_END,
} VcpuRequest;

struct Vcpu {
        VcpuConfig config;
        int fd;
        struct kvm_run *run;
        size_t run_bytes;
        pthread_t thread;
        bool has_thread;

        pthread_mutex_t lock;       /* request, parked and over; never held across anything that waits */
        pthread_cond_t changed;
        VcpuRequest request;
        bool parked;
        bool over;                  /* the guest has ended here: never again */

        /* Written by the vCPU's thread alone. */
        _Atomic uint64_t n_exits;
        _Atomic uint64_t n_mmio;
        _Atomic uint64_t n_pio;
};

static void count(_Atomic uint64_t *counter) {
        /* One writer: no need for a locked addition. */
        atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

static void on_kick(int signal) {
        (void) signal;
}

/* From here to vcpu_thread(): on the vCPU's own thread. A handler returns -ECANCELED when the guest
 * is over. */

_printf_(4, 5)
static int end(Vcpu *v, VmmExitReason reason, uint32_t status, const char *format, ...) {
        char message[sizeof(((VmmExitRecord *) NULL)->message)];
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(message, sizeof(message), format, ap);
        va_end(ap);

        v->config.on_end(v->config.userdata, reason, status, message);
        return -ECANCELED;
}

static int handle_pio(Vcpu *v) {
        typeof(v->run->io) *io = &v->run->io;
        uint8_t *p = (uint8_t *) v->run + io->data_offset;

        count(&v->n_pio);

        for (uint32_t i = 0; i < io->count; i++, p += io->size) {
                PioResult r = pio_access(v->config.serial, io->port, p, io->size,
                                         io->direction == KVM_EXIT_IO_OUT);

                if (r == PIO_POWEROFF)
                        return end(v, VMM_EXIT_POWEROFF, 0, "the guest powered off");
                if (r == PIO_RESET)
                        return end(v, VMM_EXIT_RESET, 0, "the guest asked for a reset");
        }
        return 0;
}

static int handle_mmio(Vcpu *v) {
        typeof(v->run->mmio) *mmio = &v->run->mmio;

        count(&v->n_mmio);

        switch (mmio->len) {

        case 1:
        case 2:
        case 4:
        case 8:
                devices_mmio(v->config.devices, mmio->phys_addr, mmio->data, mmio->len, mmio->is_write);
                break;

        default:
                if (!mmio->is_write)
                        memset(mmio->data, 0xff, sizeof(mmio->data));
        }
        return 0;
}

static int handle_system_event(Vcpu *v) {
        uint32_t type = v->run->system_event.type;

        switch (type) {

        case KVM_SYSTEM_EVENT_SHUTDOWN:
                return end(v, VMM_EXIT_POWEROFF, 0, "the guest powered off");

        case KVM_SYSTEM_EVENT_RESET:
                return end(v, VMM_EXIT_RESET, 0, "the guest asked for a reset");

        default:
                return end(v, VMM_EXIT_INTERNAL_ERROR, type, "KVM system event %u", type);
        }
}

static int handle_internal_error(Vcpu *v) {
        uint32_t suberror = v->run->internal.suberror;
        struct kvm_regs regs = {};

        (void) ioctl(v->fd, KVM_GET_REGS, &regs);
        return end(v, VMM_EXIT_INTERNAL_ERROR, suberror, "KVM internal error %u on vCPU %u at rip 0x%llx%s",
                   suberror, v->config.index, regs.rip,
                   suberror == KVM_INTERNAL_ERROR_EMULATION ? " (instruction not emulated)" : "");
}

static int handle_exit(Vcpu *v) {
        struct kvm_run *run = v->run;

        count(&v->n_exits);

        switch (run->exit_reason) {

        case KVM_EXIT_IO:
                return handle_pio(v);

        case KVM_EXIT_MMIO:
                return handle_mmio(v);

        case KVM_EXIT_SHUTDOWN:
                return end(v, VMM_EXIT_TRIPLE_FAULT, 0, "triple fault on vCPU %u", v->config.index);

        case KVM_EXIT_INTERNAL_ERROR:
                return handle_internal_error(v);

        case KVM_EXIT_FAIL_ENTRY: {
                unsigned long long reason = run->fail_entry.hardware_entry_failure_reason;
                return end(v, VMM_EXIT_INTERNAL_ERROR, (uint32_t) reason,
                           "vCPU %u cannot enter the guest, hardware reason 0x%llx",
                           v->config.index, reason);
        }

        case KVM_EXIT_SYSTEM_EVENT:
                return handle_system_event(v);

        /* The local APIC is the kernel's, which waits there itself; nothing is lost if it does not. */
        case KVM_EXIT_HLT:
        case KVM_EXIT_INTR:
        case KVM_EXIT_IRQ_WINDOW_OPEN:
        case KVM_EXIT_SET_TPR:
        case KVM_EXIT_IOAPIC_EOI:
                return 0;

        default:
                return end(v, VMM_EXIT_INTERNAL_ERROR, run->exit_reason, "unexpected KVM exit %u on vCPU %u",
                           run->exit_reason, v->config.index);
        }
}

static bool wanted(Vcpu *v, VcpuRequest request) {
        pthread_mutex_lock(&v->lock);
        bool r = v->request == request;
        pthread_mutex_unlock(&v->lock);
        return r;
}

/* Leaves only through EINTR or the guest's end: KVM_RUN with immediate_exit set finishes the I/O of
 * the exit before, so that a parked vCPU's state is whole. */
static void run_guest(Vcpu *v) {
        int r = 0;

        while (r >= 0) {
                if (ioctl(v->fd, KVM_RUN, 0) >= 0)
                        r = handle_exit(v);
                else if (errno == EINTR) {
                        if (!wanted(v, REQUEST_RUN))
                                return;
                } else if (errno != EAGAIN)
                        r = end(v, VMM_EXIT_INTERNAL_ERROR, (uint32_t) errno, "KVM_RUN on vCPU %u: %s",
                                v->config.index, strerrorname_np(errno) ?: "?");
        }

        pthread_mutex_lock(&v->lock);
        v->over = true;
        if (v->request == REQUEST_RUN)
                v->request = REQUEST_PARK;
        pthread_mutex_unlock(&v->lock);
}

/* Parks until there is something to do. False at the end. */
static bool park(Vcpu *v) {
        pthread_mutex_lock(&v->lock);
        while (v->request == REQUEST_PARK) {
                v->parked = true;
                pthread_cond_broadcast(&v->changed);
                pthread_cond_wait(&v->changed, &v->lock);
        }
        v->parked = false;
        bool run = v->request == REQUEST_RUN;
        pthread_mutex_unlock(&v->lock);
        return run;
}

static void thread_prepare(Vcpu *v) {
        char name[16];
        sigset_t mask;

        (void) snprintf(name, sizeof(name), "vcpu%u", v->config.index);
        (void) pthread_setname_np(pthread_self(), name);

        (void) sigfillset(&mask);
        (void) sigdelset(&mask, SIGNAL_KICK);
        (void) sigdelset(&mask, SIGSYS);
        (void) pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

static void *vcpu_thread(void *userdata) {
        Vcpu *v = userdata;

        thread_prepare(v);

        int r = seccomp_apply(SECCOMP_VCPU);
        if (r < 0) {
                (void) end(v, VMM_EXIT_VMM_ERROR, (uint32_t) -r, "system call filter of vCPU %u",
                           v->config.index);
                return NULL;
        }

        while (park(v))
                run_guest(v);
        return NULL;
}

/* From here on: the machine's thread. */

static int create(Vcpu *v, ErrorText *e) {
        Vm *vm = v->config.vm;

        v->fd = ioctl(vm->fd, KVM_CREATE_VCPU, (unsigned long) v->config.index);
        if (v->fd < 0)
                return error_set_errno(e, -errno, "KVM_CREATE_VCPU %u", v->config.index);

        int size = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
        if (size < (int) sizeof(struct kvm_run))
                return error_set(e, -EPROTO, "KVM_GET_VCPU_MMAP_SIZE says %d", size);

        void *run = mmap(NULL, (size_t) size, PROT_READ|PROT_WRITE, MAP_SHARED, v->fd, 0);
        if (run == MAP_FAILED)
                return error_set_errno(e, -errno, "mapping the run area of vCPU %u", v->config.index);
        v->run = run;
        v->run_bytes = (size_t) size;
        return 0;
}

/* All memory write-back, as firmware would have set it; else Linux does without PAT. */
static int set_memory_types(Vcpu *v, ErrorText *e) {
        struct {
                struct kvm_msrs head;
                struct kvm_msr_entry entry;
        } msrs = {
                .head.nmsrs = 1,
                .entry = { .index = MSR_MTRR_DEF_TYPE, .data = MTRR_ENABLED_WRITE_BACK },
        };

        int n = ioctl(v->fd, KVM_SET_MSRS, &msrs);
        if (n < 0)
                return error_set_errno(e, -errno, "KVM_SET_MSRS for vCPU %u", v->config.index);
        if (n != 1)
                return error_set(e, -EIO, "KVM refuses MSR 0x%x on vCPU %u", MSR_MTRR_DEF_TYPE,
                                 v->config.index);
        return 0;
}

static int start_thread(Vcpu *v, ErrorText *e) {
        struct sigaction action = { .sa_handler = on_kick };
        pthread_attr_t attr;

        if (sigaction(SIGNAL_KICK, &action, NULL) < 0)
                return error_set_errno(e, -errno, "kick signal");

        (void) pthread_attr_init(&attr);
        (void) pthread_attr_setstacksize(&attr, STACK_BYTES);
        int r = pthread_create(&v->thread, &attr, vcpu_thread, v);
        (void) pthread_attr_destroy(&attr);
        if (r != 0)
                return error_set_errno(e, -r, "thread of vCPU %u", v->config.index);

        v->has_thread = true;
        return 0;
}

static int setup(Vcpu *v, ErrorText *e) {
        const VcpuConfig *c = &v->config;

        int r = create(v, e);
        if (r < 0)
                return r;
        r = cpuid_set(v->fd, c->cpuid, c->index, c->n_possible, c->cpuid_hide, e);
        if (r < 0)
                return r;
        r = set_memory_types(v, e);
        if (r < 0)
                return r;
        return start_thread(v, e);
}

int vcpu_new(const VcpuConfig *config, Vcpu **ret, ErrorText *e) {
        assert(config);
        assert(config->on_end);
        assert(ret);

        Vcpu *v = new0(Vcpu, 1);
        if (!v)
                return error_set(e, -ENOMEM, "out of memory");

        v->config = *config;
        v->fd = -EBADF;
        (void) pthread_mutex_init(&v->lock, NULL);
        (void) pthread_cond_init(&v->changed, NULL);

        int r = setup(v, e);
        v->config.cpuid = NULL;
        if (r < 0) {
                vcpu_free(v);
                return r;
        }

        *ret = v;
        return 0;
}

static void request(Vcpu *v, VcpuRequest what) {
        pthread_mutex_lock(&v->lock);
        if (v->over && what == REQUEST_RUN)
                what = REQUEST_PARK;
        v->request = what;
        /* Together with the signal this closes the gap between a look at request and KVM_RUN. */
        __atomic_store_n(&v->run->immediate_exit, what != REQUEST_RUN, __ATOMIC_SEQ_CST);
        pthread_cond_broadcast(&v->changed);
        pthread_mutex_unlock(&v->lock);

        if (what != REQUEST_RUN && v->has_thread)
                (void) pthread_kill(v->thread, SIGNAL_KICK);
}

void vcpu_resume(Vcpu *v) {
        assert(v);
        request(v, REQUEST_RUN);
}

void vcpu_pause(Vcpu *v) {
        assert(v);
        request(v, REQUEST_PARK);
}

bool vcpu_wait_parked(Vcpu *v, uint64_t timeout_usec) {
        struct timespec until;
        int r = 0;

        assert(v);

        (void) clock_gettime(CLOCK_MONOTONIC, &until);
        uint64_t nsec = (uint64_t) until.tv_nsec + timeout_usec * NSEC_PER_USEC;
        until.tv_sec += (time_t) (nsec / NSEC_PER_SEC);
        until.tv_nsec = (long) (nsec % NSEC_PER_SEC);

        pthread_mutex_lock(&v->lock);
        while (!v->parked && r == 0)
                r = pthread_cond_clockwait(&v->changed, &v->lock, CLOCK_MONOTONIC, &until);
        bool parked = v->parked;
        pthread_mutex_unlock(&v->lock);
        return parked;
}

Vcpu *vcpu_free(Vcpu *v) {
        if (!v)
                return NULL;

        if (v->has_thread) {
                request(v, REQUEST_END);
                (void) pthread_join(v->thread, NULL);
        }
        if (v->run)
                (void) munmap(v->run, v->run_bytes);
        safe_close(v->fd);
        (void) pthread_cond_destroy(&v->changed);
        (void) pthread_mutex_destroy(&v->lock);
        free(v);
        return NULL;
}

static struct kvm_segment flat_segment(uint16_t selector, uint8_t type) {
        return (struct kvm_segment) {
                .selector = selector, .limit = UINT32_MAX, .type = type,
                .present = 1, .s = 1, .db = 1, .g = 1,
        };
}

/* The state that the PVH ABI asks for (Xen, docs/misc/pvh.pandoc). */
int vcpu_set_entry(Vcpu *v, uint64_t entry, uint64_t info, ErrorText *e) {
        struct kvm_regs regs = { .rip = entry, .rbx = info, .rflags = RFLAGS_FIXED };
        struct kvm_sregs sregs;

        assert(v);

        if (ioctl(v->fd, KVM_GET_SREGS, &sregs) < 0)
                return error_set_errno(e, -errno, "KVM_GET_SREGS");

        sregs.cs = flat_segment(SELECTOR_CODE, SEGMENT_CODE);
        sregs.ds = flat_segment(SELECTOR_DATA, SEGMENT_DATA);
        sregs.es = sregs.ss = sregs.fs = sregs.gs = sregs.ds;
        sregs.tr = (struct kvm_segment) { .selector = SELECTOR_TASK, .limit = 0x67,
                                          .type = SEGMENT_TASK_32_BUSY, .present = 1 };
        sregs.cr0 = CR0_PE | CR0_ET;
        sregs.cr4 = 0;
        sregs.efer = 0;

        if (ioctl(v->fd, KVM_SET_SREGS, &sregs) < 0)
                return error_set_errno(e, -errno, "KVM_SET_SREGS");
        if (ioctl(v->fd, KVM_SET_REGS, &regs) < 0)
                return error_set_errno(e, -errno, "KVM_SET_REGS");
        return 0;
}

int vcpu_fd(const Vcpu *v) {
        assert(v);
        return v->fd;
}

void vcpu_counters(const Vcpu *v, VcpuCounters *ret) {
        assert(v);
        assert(ret);

        *ret = (VcpuCounters) {
                .exits = atomic_load_explicit(&v->n_exits, memory_order_relaxed),
                .mmio = atomic_load_explicit(&v->n_mmio, memory_order_relaxed),
                .pio = atomic_load_explicit(&v->n_pio, memory_order_relaxed),
        };
}
