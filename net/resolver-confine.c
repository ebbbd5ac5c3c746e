/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/sockios.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/macros.h"
#include "net/resolver-confine.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static const int calls[] = {
        SCMP_SYS(accept4), SCMP_SYS(brk), SCMP_SYS(clock_gettime), SCMP_SYS(close), SCMP_SYS(connect),
        SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_pwait), SCMP_SYS(epoll_pwait2), SCMP_SYS(epoll_wait),
        SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(fcntl), SCMP_SYS(fstat), SCMP_SYS(futex), SCMP_SYS(getpid),
        SCMP_SYS(getrandom), SCMP_SYS(getsockopt), SCMP_SYS(gettid), SCMP_SYS(lseek), SCMP_SYS(madvise), SCMP_SYS(mremap),
        SCMP_SYS(munmap), SCMP_SYS(newfstatat), SCMP_SYS(pread64), SCMP_SYS(read), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg),
        SCMP_SYS(restart_syscall), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
        SCMP_SYS(sendmsg), SCMP_SYS(sendto), SCMP_SYS(shutdown), SCMP_SYS(stat), SCMP_SYS(tgkill), SCMP_SYS(timerfd_create),
        SCMP_SYS(timerfd_settime), SCMP_SYS(write), SCMP_SYS(writev),
};

static const int map_commands[] = { BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM, BPF_MAP_GET_NEXT_KEY };

static int drop_capabilities(void) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};

        return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

static void releasep(scmp_filter_ctx *filter) {
        if (*filter)
                seccomp_release(*filter);
}

/* Files are opened to be read, sockets are those of the internet and of cube-netd, memory never holds code. */
static int allow_some(scmp_filter_ctx filter) {
        static const int memory[] = { SCMP_SYS(mmap), SCMP_SYS(mprotect) };
        static const unsigned families[] = { 1 /* AF_UNIX */, 2 /* AF_INET */, 10 /* AF_INET6 */ };
        /* O_RDONLY makes and truncates files, too. */
        int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                                 SCMP_A2(SCMP_CMP_MASKED_EQ, O_ACCMODE|O_CREAT|O_TRUNC, 0));

        /* The link of a name server's address. */
        if (r >= 0)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, SIOCGIFINDEX));
        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(memory); i++)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, memory[i], 1, SCMP_A2(SCMP_CMP_MASKED_EQ, 4 /* PROT_EXEC */, 0));
        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(families); i++)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_EQ, families[i]));
        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(map_commands); i++)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(bpf), 1,
                                     SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t) map_commands[i]));
        return r;
}

static int filter_calls(void) {
        _cleanup_(releasep) scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        int r = filter ? 0 : -ENOMEM;

        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(calls); i++)
                r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
        if (r >= 0)
                r = allow_some(filter);
        return r < 0 ? r : seccomp_load(filter);
}

int resolver_confine(void) {
        int r = drop_capabilities();

        if (r >= 0 && setrlimit(RLIMIT_CORE, &(struct rlimit) {}) < 0)
                r = -errno;
        if (r >= 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                r = -errno;
        /* A sanitizer's own calls don't fit in. */
        return r < 0 || SANITIZED ? r : filter_calls();
}
