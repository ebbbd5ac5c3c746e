/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/capability.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "daemon/image/confine.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* A kernel of 512 MiB at most, what it was packed in, and a decompressor's window. */
#define ADDRESS_SPACE_MAX GIB(2)
#define CPU_SECONDS_MAX 3600

static const int stream_calls[] = {
        SCMP_SYS(brk), SCMP_SYS(clock_gettime), SCMP_SYS(close), SCMP_SYS(exit), SCMP_SYS(exit_group),
        SCMP_SYS(fcntl), SCMP_SYS(fstat), SCMP_SYS(futex), SCMP_SYS(getpid), SCMP_SYS(getrandom),
        SCMP_SYS(gettid), SCMP_SYS(lseek), SCMP_SYS(madvise), SCMP_SYS(mremap), SCMP_SYS(munmap),
        SCMP_SYS(newfstatat), SCMP_SYS(pread64), SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(restart_syscall),
        SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sysinfo),
        SCMP_SYS(tgkill), SCMP_SYS(write), SCMP_SYS(writev),
};

static const int tree_calls[] = {
        SCMP_SYS(access), SCMP_SYS(chdir), SCMP_SYS(dup), SCMP_SYS(faccessat), SCMP_SYS(faccessat2),
        SCMP_SYS(fchdir), SCMP_SYS(fgetxattr), SCMP_SYS(flistxattr), SCMP_SYS(fstatfs), SCMP_SYS(getcwd),
        SCMP_SYS(getdents64), SCMP_SYS(getegid), SCMP_SYS(geteuid), SCMP_SYS(getgid), SCMP_SYS(getuid),
        SCMP_SYS(getxattr), SCMP_SYS(lgetxattr), SCMP_SYS(listxattr), SCMP_SYS(llistxattr),
        SCMP_SYS(lstat), SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(openat2), SCMP_SYS(readlink),
        SCMP_SYS(readlinkat), SCMP_SYS(stat), SCMP_SYS(statfs), SCMP_SYS(statx), SCMP_SYS(umask),
};

static const int file_calls[] = {
        SCMP_SYS(copy_file_range), SCMP_SYS(ftruncate), SCMP_SYS(pwrite64),
};

static const int ask_calls[] = {
        SCMP_SYS(recvmsg), SCMP_SYS(sendmsg),
};

/* What takes on another filter. */
static const int narrow_calls[] = {
        SCMP_SYS(prctl), SCMP_SYS(seccomp),
};

static const int store_calls[] = {
        SCMP_SYS(copy_file_range), SCMP_SYS(fchmod), SCMP_SYS(fdatasync), SCMP_SYS(flock), SCMP_SYS(fsync), SCMP_SYS(ftruncate),
        SCMP_SYS(linkat), SCMP_SYS(mkdirat), SCMP_SYS(pwrite64), SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(symlinkat), SCMP_SYS(unlinkat),
};

static int limit(int resource, rlim_t value) {
        struct rlimit l;

        if (getrlimit((__rlimit_resource_t) resource, &l) < 0)
                return -errno;
        l.rlim_max = MIN(l.rlim_max, value);
        l.rlim_cur = MIN(l.rlim_cur, l.rlim_max);
        return setrlimit((__rlimit_resource_t) resource, &l) < 0 ? -errno : 0;
}

static int drop_capabilities(bool keep_dac) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct had[_LINUX_CAPABILITY_U32S_3] = {}, keep[_LINUX_CAPABILITY_U32S_3] = {};
        uint32_t dac = 1U << CAP_DAC_READ_SEARCH;

        if (syscall(SYS_capget, &header, had) < 0)
                return -errno;
        if (keep_dac)
                keep[0].effective = keep[0].permitted = had[0].permitted & dac;
        return syscall(SYS_capset, &header, keep) < 0 ? -errno : 0;
}

static int allow(scmp_filter_ctx filter, const int *calls, size_t n) {
        for (size_t i = 0; i < n; i++) {
                int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Memory may be mapped, but never as code. */
static int allow_memory(scmp_filter_ctx filter) {
        static const int calls[] = { SCMP_SYS(mmap), SCMP_SYS(mprotect) };

        for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
                int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 1,
                                         SCMP_A2(SCMP_CMP_MASKED_EQ, 4 /* PROT_EXEC */, 0));
                if (r < 0)
                        return r;
        }
        return 0;
}

static void releasep(scmp_filter_ctx *filter) {
        if (*filter)
                seccomp_release(*filter);
}

static int filter_calls(ConfineLevel level) {
        _cleanup_(releasep) scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        int r;

        if (!filter)
                return -ENOMEM;
        r = allow_memory(filter);
        if (r >= 0)
                r = allow(filter, stream_calls, ELEMENTSOF(stream_calls));
        if (r >= 0 && level >= CONFINE_TREE)
                r = allow(filter, tree_calls, ELEMENTSOF(tree_calls));
        if (r >= 0 && level == CONFINE_FILES)
                r = allow(filter, file_calls, ELEMENTSOF(file_calls));
        if (r >= 0 && level == CONFINE_OPENING)
                r = allow(filter, narrow_calls, ELEMENTSOF(narrow_calls));
        if (r >= 0 && level == CONFINE_ASK)
                r = allow(filter, ask_calls, ELEMENTSOF(ask_calls));
        if (r >= 0 && level == CONFINE_STORE)
                r = allow(filter, store_calls, ELEMENTSOF(store_calls));
        return r < 0 ? r : seccomp_load(filter);
}

int confine(ConfineLevel level, bool keep_dac, Fault *fault) {
        int r;

        r = limit(RLIMIT_CORE, 0);
        if (r >= 0)
                r = limit(RLIMIT_CPU, CPU_SECONDS_MAX);
        /* A sanitizer's shadow memory and its own system calls fit into neither. */
        if (r >= 0 && !SANITIZED)
                r = limit(RLIMIT_AS, ADDRESS_SPACE_MAX);
        if (r >= 0)
                r = drop_capabilities(keep_dac);
        if (r >= 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                r = -errno;
        if (r >= 0 && !SANITIZED)
                r = filter_calls(level);
        return r < 0 ? fault_set(fault, r, "giving up privileges: %s", strerror(-r)) : 0;
}

int confine_to_streams(Fault *fault) {
        int r = SANITIZED ? 0 : filter_calls(CONFINE_STREAMS);

        return r < 0 ? fault_set(fault, r, "giving up opening files: %s", strerror(-r)) : 0;
}
