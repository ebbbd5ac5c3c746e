/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/vmm-proto.h"
#include "vmm/forbidden.h"

/* SYS_SECCOMP of <asm/siginfo.h>, which has no place beside <signal.h>. */
#define FROM_A_FILTER 1
/* As a shell tells of it: there is no record, or nobody reads it. */
#define EXIT_STATUS (128 + SIGSYS)

/* A handler has no argument of its own. */
static int report_fd = -EBADF;
static __thread const char *thread_name;

void forbidden_calls_report_to(int exit_fd) {
        report_fd = exit_fd;
}

void forbidden_calls_name_thread(const char *name) {
        thread_name = name;
}

/* Whoever made the call may hold any lock: nothing here takes one, or allocates. */
static void write_record(uint32_t call) {
        static const char text[] = "a forbidden system call of thread ";
        VmmExitRecord record = {
                .magic = VMM_EXIT_RECORD_MAGIC,
                .version = 1,
                .reason = VMM_EXIT_FORBIDDEN_CALL,
                .status = call,
        };
        struct timespec ts;

        (void) clock_gettime(CLOCK_REALTIME, &ts);
        record.realtime_usec = (uint64_t) ts.tv_sec * USEC_PER_SEC + (uint64_t) ts.tv_nsec / NSEC_PER_USEC;
        static_assert(sizeof(record.message) > sizeof(text) + 32, "text and name fit");
        (void) stpncpy(stpcpy(record.message, text), thread_name ?: "main", 31);
        (void) !write(report_fd, &record, sizeof(record));
}

static void on_forbidden_call(int signal, siginfo_t *info, void *context) {
        if (info->si_code != FROM_A_FILTER)
                return;
        if (report_fd >= 0)
                write_record((uint32_t) info->si_syscall);
        for (;;)
                (void) syscall(SYS_exit_group, EXIT_STATUS);
}

int forbidden_calls_catch(ErrorText *e) {
        struct sigaction action = { .sa_sigaction = on_forbidden_call, .sa_flags = SA_SIGINFO };

        sigfillset(&action.sa_mask);
        return sigaction(SIGSYS, &action, NULL) < 0 ? error_set_errno(e, -errno, "catching forbidden system calls") : 0;
}
