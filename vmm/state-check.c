/* SPDX-License-Identifier: Apache-2.0 */

/* cube-state-check: whether a guest that was saved elsewhere can go on with this host's CPU.
 *
 * Standard input is the state file, descriptor 4 is /dev/kvm. What KVM gives guests here is asked first; then
 * everything is given up but reading, and the file, which is hostile, is read by the same code as in cube-vmm.
 * Exit status 0, or 1 and one line on stderr. */

#include <seccomp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#include "vmm/cpuid.h"
#include "vmm/snapshot-state.h"

#define KVM_FD 4

#ifndef VMM_SANITIZED
static const int calls[] = {
        SCMP_SYS(brk), SCMP_SYS(close), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(fstat), SCMP_SYS(getpid),
        SCMP_SYS(gettid), SCMP_SYS(madvise), SCMP_SYS(mremap), SCMP_SYS(munmap), SCMP_SYS(newfstatat), SCMP_SYS(pread64),
        SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(tgkill), SCMP_SYS(write), SCMP_SYS(writev),
};

static int give_up(void) {
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));

        int r = filter ? seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, 4 /* PROT_EXEC */, 0)) :
                         -ENOMEM;
        for (size_t i = 0; i < ELEMENTSOF(calls) && r >= 0; i++)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
        if (r >= 0)
                r = seccomp_load(filter);
        if (filter)
                seccomp_release(filter);
        return r;
}
#else
static int give_up(void) {
        return 0;
}
#endif

/* As a guest's CPU here has it. */
static int ask_tsc(uint32_t *ret_khz, ErrorText *e) {
        int vm = ioctl(KVM_FD, KVM_CREATE_VM, 0);
        if (vm < 0)
                return error_set_errno(e, -errno, "KVM_CREATE_VM");
        int cpu = ioctl(vm, KVM_CREATE_VCPU, 0);
        if (cpu < 0)
                return error_set_errno(e, -errno, "KVM_CREATE_VCPU");
        int khz = ioctl(cpu, KVM_GET_TSC_KHZ, 0);
        if (khz <= 0)
                return error_set_errno(e, khz < 0 ? -errno : -EOPNOTSUPP, "KVM_GET_TSC_KHZ");
        *ret_khz = (uint32_t) khz;
        return 0;
}

static int check(ErrorText *e) {
        _cleanup_snapshot_state_ SnapshotState s = {};
        CpuidTable host;
        uint32_t khz = 0;

        int r = cpuid_load(KVM_FD, &host, e);
        if (r >= 0)
                r = ask_tsc(&khz, e);
        if (r < 0)
                return r;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return error_set_errno(e, -errno, "no_new_privs");
        r = give_up();
        if (r < 0)
                return error_set_errno(e, r, "giving up system calls");
        r = snapshot_state_read(STDIN_FILENO, &s, e);
        return r < 0 ? r : snapshot_state_check_host(&s, &host, khz, e);
}

int main(void) {
        ErrorText e = {};

        int r = check(&e);
        if (r < 0)
                fprintf(stderr, "cube-state-check: %s\n", *e.text ? e.text : strerror(-r));
        return r < 0 ? 1 : 0;
}
