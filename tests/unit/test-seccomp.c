/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "test.h"
#include "vmm/seccomp.h"

#define HIGHEST_CALL 470

/* What a child process does behind a filter. */
typedef struct Attempt {
        long call;
        long args[6];
} Attempt;

static void prepare(void) {
#ifdef __SANITIZE_ADDRESS__
        test_skip("a sanitizer build has no filters");
#endif
        assert_ok(seccomp_prepare(NULL));
        assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
}

/* Whether the filters, one on top of the other, kill a process that makes this call. */
static bool kills(const SeccompProfile *profiles, size_t n, const Attempt *a) {
        int status = 0;

        pid_t pid = fork();
        if (pid == 0) {
                for (size_t i = 0; i < n; i++)
                        if (seccomp_apply(profiles[i]) < 0)
                                _exit(1);
                (void) syscall(a->call, a->args[0], a->args[1], a->args[2], a->args[3], a->args[4],
                               a->args[5]);
                _exit(0);
        }
        assert_true(pid > 0);
        assert_eq(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status))
                assert_eq(WEXITSTATUS(status), 0);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
}

static void check(SeccompProfile profile, const Attempt *a, bool killed) {
        if (kills(&profile, 1, a) != killed)
                test_stop(TEST_FAILED, __LINE__, "profile %d: call %ld(%ld, %ld, %ld) is %s", (int) profile,
                          a->call, a->args[0], a->args[1], a->args[2], killed ? "allowed" : "refused");
}

static void for_all(Attempt a, bool killed) {
        for (SeccompProfile p = 0; p < _SECCOMP_PROFILE_MAX; p++)
                check(p, &a, killed);
}

TEST(nobody_opens_runs_or_makes_anything) {
        prepare();
        for_all((Attempt) { SYS_open, { (long) "/", O_RDONLY } }, true);
        for_all((Attempt) { SYS_openat, { AT_FDCWD, (long) "/", O_RDONLY } }, true);
        for_all((Attempt) { SYS_openat2 }, true);
        for_all((Attempt) { SYS_execve }, true);
        for_all((Attempt) { SYS_execveat }, true);
        for_all((Attempt) { SYS_fork }, true);
        for_all((Attempt) { SYS_vfork }, true);
        for_all((Attempt) { SYS_clone, { SIGCHLD } }, true);
        for_all((Attempt) { SYS_socket, { AF_UNIX, SOCK_STREAM, 0 } }, true);
        for_all((Attempt) { SYS_connect }, true);
        for_all((Attempt) { SYS_bind }, true);
        for_all((Attempt) { SYS_ptrace }, true);
        for_all((Attempt) { SYS_process_vm_readv }, true);
        for_all((Attempt) { SYS_kill, { 1, 0 } }, true);
        for_all((Attempt) { SYS_mount }, true);
        for_all((Attempt) { SYS_setuid, { 0 } }, true);
        for_all((Attempt) { SYS_unshare, { 0 } }, true);
        for_all((Attempt) { SYS_bpf }, true);
        for_all((Attempt) { SYS_userfaultfd, { 0 } }, true);
        for_all((Attempt) { SYS_io_uring_setup }, true);
        for_all((Attempt) { SYS_memfd_create }, true);
        for_all((Attempt) { SYS_dup, { 0 } }, true);
        for_all((Attempt) { SYS_ioctl, { 0, 0x5412 /* TIOCSTI */, 0 } }, true);
}

TEST(memory_is_never_executable) {
        prepare();
        for_all((Attempt) { SYS_mmap, { 0, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1,
                                        0 } }, false);
        for_all((Attempt) { SYS_mmap, { 0, 4096, PROT_READ|PROT_EXEC, MAP_PRIVATE|MAP_ANONYMOUS, -1,
                                        0 } }, true);
        for_all((Attempt) { SYS_mprotect, { 0, 0, PROT_READ } }, false);
        for_all((Attempt) { SYS_mprotect, { 0, 0, PROT_EXEC } }, true);
        for_all((Attempt) { SYS_pkey_mprotect, { 0, 0, PROT_EXEC, 0 } }, true);
}

TEST(ioctls_by_profile) {
        static const struct {
                unsigned long request;
                bool construct, run, vcpu, disk;
        } cases[] = {
                { KVM_RUN, true, false, true, false },
                { KVM_SIGNAL_MSI, true, true, true, true },
                { KVM_GET_REGS, true, true, true, false },
                { KVM_SET_REGS, true, true, false, false },
                { KVM_SET_MSRS, true, true, false, false },
                { KVM_SET_LAPIC, true, true, false, false },
                { KVM_SET_CPUID2, true, false, false, false },
                { KVM_GET_MSR_INDEX_LIST, true, false, false, false },
                { KVM_CREATE_VM, true, false, false, false },
                { KVM_CREATE_VCPU, true, false, false, false },
                { KVM_SET_USER_MEMORY_REGION, true, true, false, false },
                { KVM_IOEVENTFD, true, false, false, false },
                { KVM_CREATE_DEVICE, false, false, false, false },
                { KVM_SET_NESTED_STATE, false, false, false, false },
                { TUNSETOFFLOAD, true, true, false, false },
                { TUNGETIFF, true, false, false, false },
                { TUNSETVNETHDRSZ, true, false, false, false },
                { TUNSETIFF, false, false, false, false },
                { TUNATTACHFILTER, false, false, false, false },
                { KVM_ASSIGN_SET_MSIX_ENTRY, false, false, false, false },
        };

        prepare();
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                const Attempt a = { SYS_ioctl, { -1, (long) cases[i].request, 0 } };
                /* The kernel looks at 32 bits of it, and so must the filter. */
                const Attempt high = { SYS_ioctl, { -1, (long) (cases[i].request | 1UL << 40), 0 } };

                check(SECCOMP_CONSTRUCT, &a, !cases[i].construct);
                check(SECCOMP_RUN, &a, !cases[i].run);
                check(SECCOMP_VCPU, &a, !cases[i].vcpu);
                check(SECCOMP_DISK, &a, !cases[i].disk);
                check(SECCOMP_VCPU, &high, !cases[i].vcpu);
        }
}

TEST(threads_only_while_building) {
        const Attempt clone3 = { SYS_clone3, { 0, 0 } };
        const Attempt filter = { SYS_seccomp, { 1, 0, 0 } };

        prepare();
        check(SECCOMP_CONSTRUCT, &clone3, false); /* ENOSYS, so that glibc takes clone() */
        check(SECCOMP_CONSTRUCT, &filter, false);
        for (SeccompProfile p = SECCOMP_RUN; p < _SECCOMP_PROFILE_MAX; p++) {
                check(p, &clone3, true);
                check(p, &filter, true);
        }
}

TEST(a_thread_and_nothing_else) {
        const long thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
        const long more[] = { CLONE_NEWNET, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNS, CLONE_PTRACE, CLONE_VFORK, CLONE_PARENT };

        prepare();
        for (size_t i = 0; i < ELEMENTSOF(more); i++)
                for_all((Attempt) { SYS_clone, { thread | more[i], 0, 0, 0, 0 } }, true);
        for_all((Attempt) { SYS_clone, { thread & ~CLONE_THREAD, 0, 0, 0, 0 } }, true);
}

/* What a child with a second thread does that makes the call, in what is left of its process. */
static void *make_call(void *call) {
        ((void (*)(void)) call)();
        return NULL;
}

static void call_of_x32(void) {
        (void) syscall(0x40000000 | SYS_getpid);
}

static void call_of_32_bits(void) {
        long r = 20; /* getpid() there */

        __asm__ volatile("int $0x80" : "+a"(r) : : "memory");
}

static int end_of(void (*call)(void)) {
        int status = 0;

        pid_t pid = fork();
        if (pid == 0) {
                pthread_t thread;

                (void) alarm(60);
                if (seccomp_apply(SECCOMP_CONSTRUCT) < 0 ||
                    pthread_create(&thread, NULL, make_call, (void *) call) != 0)
                        _exit(1);
                (void) pthread_join(thread, NULL);
                _exit(0);
        }
        assert_eq(waitpid(pid, &status, 0), pid);
        return status;
}

TEST(calls_of_other_kinds_end_the_process_and_not_their_thread) {
        prepare();
        assert_eq(WTERMSIG(end_of(call_of_x32)), SIGSYS);
        assert_eq(WTERMSIG(end_of(call_of_32_bits)), SIGSYS);
}

TEST(sockets_are_for_the_main_thread) {
        const Attempt calls[] = {
                { SYS_recvmsg, { -1 } }, { SYS_sendmsg, { -1 } }, { SYS_accept4, { -1 } }, { SYS_shutdown,
                                                                                             { -1 } },
        };

        prepare();
        for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
                check(SECCOMP_CONSTRUCT, &calls[i], false);
                check(SECCOMP_RUN, &calls[i], false);
                check(SECCOMP_VCPU, &calls[i], true);
                check(SECCOMP_DISK, &calls[i], true);
        }
        check(SECCOMP_VCPU, &(Attempt) { SYS_pread64, { -1 } }, true);
        check(SECCOMP_DISK, &(Attempt) { SYS_pread64, { -1 } }, false);
}

/* Threads take their filter on top of the main thread's: every call that a narrow profile has, the
 * construction profile has too. */
TEST(construction_is_a_superset) {
        prepare();
        for (long call = 0; call < HIGHEST_CALL; call++) {
                const Attempt a = { call, { -1, -1, -1, -1, -1, -1 } };

                /* These end or stop the child, whatever they are given. */
                if (call == SYS_exit || call == SYS_exit_group || call == SYS_rt_sigreturn ||
                    call == SYS_pause)
                        continue;
                if (!kills(&(SeccompProfile) { SECCOMP_CONSTRUCT }, 1, &a))
                        continue;
                for (SeccompProfile p = SECCOMP_RUN; p < _SECCOMP_PROFILE_MAX; p++)
                        check(p, &a, true);
        }
}
