/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_tun.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd-util.h"
#include "vmm/forbidden.h"
#include "vmm/pagemap-scan.h"
#include "vmm/seccomp.h"

#define C (1U << SECCOMP_CONSTRUCT)
#define R (1U << SECCOMP_RUN)
#define V (1U << SECCOMP_VCPU)
#define D (1U << SECCOMP_DISK)
/* Filters stack: what a narrower profile allows, construction has to allow too. */
#define MAIN (C | R)
#define IO (C | R | D)
#define ALL (C | R | V | D)

/* A call, for whom, and up to two conditions on its arguments. */
typedef struct Rule {
        int call;
        unsigned profiles;
        unsigned n_args;
        struct scmp_arg_cmp args[2];
} Rule;

#define CALL(name, who) { .call = SCMP_SYS(name), .profiles = (who) }
#define CALL_IF(name, who, ...)                                                                 \
        { .call = SCMP_SYS(name), .profiles = (who),                                            \
          .n_args = sizeof((struct scmp_arg_cmp[]) { __VA_ARGS__ }) / sizeof(struct scmp_arg_cmp), \
          .args = { __VA_ARGS__ } }
/* The initialisers behind libseccomp's SCMP_Ax() macros, which are no constant expressions. */
#define ARG_BITS(n, mask, value)                                                                \
        { .arg = (n), .op = SCMP_CMP_MASKED_EQ, .datum_a = (mask), .datum_b = (value) }
/* Commands are 32 bits wide for the kernel, whatever stands above them in the register. */
#define ARG_IS(n, value) ARG_BITS(n, UINT32_MAX, (uint32_t) (value))
#define KVM(request, who) CALL_IF(ioctl, who, ARG_IS(1, request))
#define FCNTL(command, who) CALL_IF(fcntl, who, ARG_IS(1, command))
#define NO_EXEC(n) ARG_BITS(n, PROT_EXEC, 0)

/* Those of pthread_create(), and no namespace or other process beside them. */
#define THREAD_FLAGS                                                                            \
        (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |     \
         CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

static const Rule rules[] = {
        /* KVM. Frequent ones first. */
        KVM(KVM_RUN, C | V),
        KVM(KVM_SIGNAL_MSI, ALL),
        KVM(KVM_GET_REGS, MAIN | V),
        KVM(KVM_GET_API_VERSION, C),
        KVM(KVM_CREATE_VM, C),
        KVM(KVM_CHECK_EXTENSION, MAIN),
        KVM(KVM_ENABLE_CAP, C),
        KVM(KVM_SET_TSS_ADDR, C),
        KVM(KVM_SET_USER_MEMORY_REGION, MAIN), /* later: once more, after a rollback */
        KVM(KVM_GET_SUPPORTED_CPUID, C),
        KVM(KVM_GET_VCPU_MMAP_SIZE, C),
        KVM(KVM_CREATE_VCPU, C),
        KVM(KVM_SET_CPUID2, C),
        KVM(KVM_SET_MSRS, MAIN),
        KVM(KVM_GET_SREGS, C),
        KVM(KVM_SET_SREGS, C),
        KVM(KVM_SET_REGS, MAIN),
        KVM(KVM_IOEVENTFD, C),
        KVM(KVM_GET_MSR_INDEX_LIST, C),

        /* Snapshots: what a parked vCPU is, out and in; the pages that are the guest's own. */
        KVM(KVM_GET_MP_STATE, MAIN),
        KVM(KVM_SET_MP_STATE, MAIN),
        KVM(KVM_GET_SREGS2, MAIN),
        KVM(KVM_SET_SREGS2, MAIN),
        KVM(KVM_GET_XSAVE2, MAIN),
        KVM(KVM_SET_XSAVE, MAIN),
        KVM(KVM_GET_XCRS, MAIN),
        KVM(KVM_SET_XCRS, MAIN),
        KVM(KVM_GET_DEBUGREGS, MAIN),
        KVM(KVM_SET_DEBUGREGS, MAIN),
        KVM(KVM_GET_LAPIC, MAIN),
        KVM(KVM_SET_LAPIC, MAIN),
        KVM(KVM_GET_MSRS, MAIN),
        KVM(KVM_GET_VCPU_EVENTS, MAIN),
        KVM(KVM_SET_VCPU_EVENTS, MAIN),
        KVM(KVM_GET_DEVICE_ATTR, MAIN), /* TSC offset */
        KVM(KVM_SET_DEVICE_ATTR, MAIN),
        KVM(KVM_GET_TSC_KHZ, MAIN),
        KVM(KVM_GET_CLOCK, MAIN),
        KVM(KVM_SET_CLOCK, MAIN),
        KVM(KVM_KVMCLOCK_CTRL, MAIN),
        KVM(PAGEMAP_SCAN_IOCTL, MAIN),

        /* Every thread: waiting, eventfds, memory that is not executable, time, an orderly abort(). */
        CALL(futex, ALL),
        CALL(read, ALL),
        CALL(write, ALL),
        CALL(clock_gettime, ALL), /* a system call where the clocksource is neither tsc nor kvm-clock */
        CALL(restart_syscall, ALL),
        CALL(rt_sigreturn, ALL),
        CALL(rt_sigprocmask, ALL),
        CALL_IF(mmap, ALL, NO_EXEC(2)),
        CALL_IF(mprotect, ALL, NO_EXEC(2)),
        CALL(munmap, ALL),
        CALL(mremap, ALL),
        CALL(madvise, ALL),
        CALL(brk, ALL),
        CALL(getrandom, ALL),
        CALL(getpid, ALL),
        CALL(gettid, ALL),
        CALL(tgkill, ALL),
        CALL(exit, ALL),
        CALL(exit_group, ALL),

        /* The loop, in the main and the disk thread. */
        CALL(epoll_wait, IO),
        CALL(epoll_pwait, IO),
        CALL(epoll_ctl, IO),
        CALL(close, IO),

        /* Sockets: cubed and the guest's streams. */
        CALL(recvmsg, MAIN),
        CALL(sendmsg, MAIN),
        CALL(recvfrom, MAIN),
        CALL(sendto, MAIN),
        CALL(readv, IO),
        CALL(writev, IO),
        CALL(accept4, MAIN),
        CALL(shutdown, MAIN),
        CALL(getsockopt, MAIN),
        CALL(setsockopt, MAIN),
        CALL(poll, MAIN),
        CALL(getuid, MAIN),
        FCNTL(F_GETFL, MAIN),
        FCNTL(F_SETFL, MAIN),
        FCNTL(F_GETFD, MAIN),
        FCNTL(F_SETFD, MAIN),
        FCNTL(F_DUPFD_CLOEXEC, MAIN), /* for a peer that is slow to take them */

        /* The tap: what it is, and what the guest's driver can take. */
        CALL_IF(ioctl, C, ARG_IS(1, TUNGETIFF)),
        CALL_IF(ioctl, C, ARG_IS(1, TUNSETVNETHDRSZ)),
        CALL_IF(ioctl, MAIN, ARG_IS(1, TUNSETOFFLOAD)),

        /* Disks. */
        CALL(fstat, IO),
        CALL(newfstatat, IO),     /* fstat() of glibc; there is no path in the jail to look at */
        CALL(pread64, IO),
        CALL(pwrite64, IO),
        CALL(preadv, IO),
        CALL(pwritev, IO),
        CALL(preadv2, IO),
        CALL(pwritev2, IO),
        CALL(lseek, IO),
        CALL(fdatasync, IO),
        CALL(fallocate, IO),

        /* Building: threads, eventfds, loops, and taking on a narrower filter. */
        CALL_IF(clone, C, ARG_IS(0, THREAD_FLAGS)),
        CALL(set_robust_list, C),
        CALL(rseq, C),
        CALL(rt_sigaction, C),
        CALL(eventfd2, C),
        CALL(epoll_create1, C),
        CALL_IF(prctl, C, ARG_IS(0, PR_SET_NAME)),
        CALL_IF(prlimit64, C, ARG_IS(0, 0)), /* of itself */
        CALL_IF(seccomp, C, ARG_IS(0, SECCOMP_SET_MODE_FILTER)),
};

/* Written by seccomp_prepare(), before there is a second thread, and only read afterwards. */
static struct sock_fprog programs[_SECCOMP_PROFILE_MAX];

static int add_rules(scmp_filter_ctx context, SeccompProfile profile) {
        for (size_t i = 0; i < ELEMENTSOF(rules); i++) {
                const Rule *rule = &rules[i];

                if (!(rule->profiles & (1U << profile)))
                        continue;
                int r = seccomp_rule_add_array(context, SCMP_ACT_ALLOW, rule->call, rule->n_args,
                                               rule->args);
                if (r < 0)
                        return r;
        }

        /* Its arguments lie in memory, where a filter can't see them. glibc then takes clone(). */
        if (profile == SECCOMP_CONSTRUCT)
                return seccomp_rule_add(context, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
        return 0;
}

static int read_program(int fd, struct sock_fprog *ret) {
        off_t size = lseek(fd, 0, SEEK_END);
        if (size < 0)
                return -errno;
        size_t n = (size_t) size / sizeof(struct sock_filter);
        if (n == 0 || n > BPF_MAXINSNS || (size_t) size != n * sizeof(struct sock_filter))
                return -EPROTO;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return -errno;

        _cleanup_free_ struct sock_filter *code = malloc((size_t) size);
        if (!code)
                return -ENOMEM;
        int r = read_full(fd, code, (size_t) size);
        if (r < 0)
                return r;

        *ret = (struct sock_fprog) { .len = (unsigned short) n, .filter = TAKE_PTR(code) };
        return 0;
}

static int compile(SeccompProfile profile, struct sock_fprog *ret) {
        /* libseccomp 2.5 hands out a program through a descriptor only. */
        _cleanup_close_ int fd = memfd_create("seccomp", MFD_CLOEXEC);
        if (fd < 0)
                return -errno;

        scmp_filter_ctx context = seccomp_init(SCMP_ACT_TRAP);
        if (!context)
                return -ENOMEM;

        /* 32-bit calls and those of x32: by default they would end the thread alone, and the rest would wait for it. */
        int r = seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
        if (r >= 0)
                r = add_rules(context, profile);
        if (r >= 0)
                r = seccomp_export_bpf(context, fd);
        seccomp_release(context);
        if (r < 0)
                return r;
        return read_program(fd, ret);
}

int seccomp_prepare(ErrorText *e) {
        for (SeccompProfile p = 0; p < _SECCOMP_PROFILE_MAX; p++) {
                int r = compile(p, &programs[p]);
                if (r < 0)
                        return error_set_errno(e, r, "compiling system call filter %d", (int) p);
        }
        return 0;
}

#ifdef VMM_SANITIZED
int seccomp_apply(SeccompProfile profile) {
        assert(profile < _SECCOMP_PROFILE_MAX);
        return 0;
}
#else
int seccomp_apply(SeccompProfile profile) {
        assert(profile < _SECCOMP_PROFILE_MAX);
        assert(programs[profile].filter);
        static const char *const thread[_SECCOMP_PROFILE_MAX] = { "main", "main", "vcpu", "disk" };
        /* So that the kernel's own log has it as well. The first answers ENOSYS to each new thread. */
        unsigned flags = profile == SECCOMP_CONSTRUCT ? 0 : SECCOMP_FILTER_FLAG_LOG;

        forbidden_calls_name_thread(thread[profile]);
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &programs[profile]) < 0 ? -errno : 0;
}
#endif
