/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/vmm-proto.h"
#include "vmm/build-config.h"
#include "vmm/jail.h"
#include "vmm/landlock.h"

/* A directory that every Linux system has, to put the new root on. */
#define NEW_ROOT "/proc"
#define ROOT_FLAGS (MS_RDONLY|MS_NOSUID|MS_NODEV|MS_NOEXEC)

/* 256 vsock connections, devices, and some. */
#define FILES_MAX 512U
/* vCPUs, the main thread, that of the disks, and since Linux 6.14 one of KVM's. They are the only ones of their uid. */
#define THREADS_MAX (CONFIG_CPUS_MAX + 3U)

/* Of <linux/prctl.h> as of Linux 6.3: no mapping becomes executable that was not made so. */
#define SET_MDWE 65
#define MDWE_REFUSE_EXEC_GAIN 1UL

/* No binary gains privileges, and none of this can be undone. NO_SETUID_FIXUP stays off (and is
 * locked there): it is what empties the capability sets when root becomes another uid. */
#define SECUREBITS                                                                              \
        (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |                 \
         SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

static int close_others(ErrorText *e) {
        if (close_range(VMM_LISTEN_FD + 1, UINT32_MAX, 0) < 0)
                return error_set_errno(e, -errno, "jail: closing inherited descriptors");
        return 0;
}

/* The old root is stacked on the new one by pivot_root(".", ".") and then taken off. */
static int change_root(ErrorText *e) {
        if (unshare(CLONE_NEWNS) < 0)
                return error_set_errno(e, -errno, "jail: mount namespace");
        if (mount(NULL, "/", NULL, MS_REC|MS_PRIVATE, NULL) < 0)
                return error_set_errno(e, -errno, "jail: private mounts");
        if (mount("tmpfs", NEW_ROOT, "tmpfs", ROOT_FLAGS, "mode=0555,nr_inodes=1,size=4096") < 0)
                return error_set_errno(e, -errno, "jail: mounting an empty root");
        if (chdir(NEW_ROOT) < 0)
                return error_set_errno(e, -errno, "jail: entering the empty root");
        if (syscall(SYS_pivot_root, ".", ".") < 0)
                return error_set_errno(e, -errno, "jail: pivot_root");
        if (umount2(".", MNT_DETACH) < 0)
                return error_set_errno(e, -errno, "jail: detaching the old root");
        if (chdir("/") < 0)
                return error_set_errno(e, -errno, "jail: entering the new root");
        return 0;
}

static int set_limit(int resource, const char *name, rlim_t value, ErrorText *e) {
        const struct rlimit limit = { value, value };

        return setrlimit((__rlimit_resource_t) resource, &limit) < 0 ? error_set_errno(e, -errno, "jail: limit %s", name) : 0;
}

static int set_limits(ErrorText *e) {
        static const struct {
                int resource;
                const char *name;
                rlim_t limit;
        } limits[] = {
                { RLIMIT_CORE, "core", 0 },
                { RLIMIT_MEMLOCK, "memlock", 0 },
                { RLIMIT_MSGQUEUE, "msgqueue", 0 },
                { RLIMIT_NOFILE, "nofile", FILES_MAX },
                { RLIMIT_NPROC, "nproc", THREADS_MAX },
        };

        for (size_t i = 0; i < ELEMENTSOF(limits); i++) {
                int r = set_limit(limits[i].resource, limits[i].name, limits[i].limit, e);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int empty_bounding_set(ErrorText *e) {
        /* The kernel may know more capabilities than this header; EINVAL marks the end. */
        for (unsigned long cap = 0; cap < 64; cap++)
                if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
                        if (errno == EINVAL)
                                break;
                        return error_set_errno(e, -errno, "jail: emptying the capability bounding set");
                }
        return 0;
}

static int drop_capabilities(ErrorText *e) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};

        if (syscall(SYS_capset, &header, none) < 0)
                return error_set_errno(e, -errno, "jail: dropping capabilities");
        return 0;
}

static int become(uid_t uid, gid_t gid, ErrorText *e) {
        if (setgroups(0, NULL) < 0)
                return error_set_errno(e, -errno, "jail: dropping groups");
        if (setresgid(gid, gid, gid) < 0)
                return error_set_errno(e, -errno, "jail: becoming gid %u", gid);
        if (setresuid(uid, uid, uid) < 0)
                return error_set_errno(e, -errno, "jail: becoming uid %u", uid);
        return 0;
}

static int drop_privileges(uid_t uid, gid_t gid, ErrorText *e) {
        int r = empty_bounding_set(e);
        if (r < 0)
                return r;
        if (prctl(PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0) < 0)
                return error_set_errno(e, -errno, "jail: securebits");
        r = become(uid, gid, e);
        if (r < 0)
                return r;
        r = drop_capabilities(e);
        if (r < 0)
                return r;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return error_set_errno(e, -errno, "jail: no_new_privs");
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return error_set_errno(e, -errno, "jail: not dumpable");
        return 0;
}

/* For what a hole in the filter would let through. Older kernels have neither, and do without. */
static int deny_more(ErrorText *e) {
        if (prctl(SET_MDWE, MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) < 0 && errno != EINVAL)
                return error_set_errno(e, -errno, "jail: no memory that becomes executable");

        int r = landlock_deny_all(e);
        return r < 0 ? r : 0;
}

#ifdef VMM_SANITIZED
/* A sanitizer's runtime reads /proc to report what it found. */
static int confine(uid_t uid, gid_t gid, ErrorText *e) {
        (void) change_root;
        (void) drop_privileges;
        (void) deny_more;
        return 0;
}
#else
static int confine(uid_t uid, gid_t gid, ErrorText *e) {
        int r = change_root(e);
        if (r < 0)
                return r;
        r = drop_privileges(uid, gid, e);
        return r < 0 ? r : deny_more(e);
}
#endif

int jail_enter(uid_t uid, gid_t gid, ErrorText *e) {
        if (uid == 0 || gid == 0)
                return error_set(e, -EINVAL, "jail: uid and gid must not be 0");

        int r = close_others(e);
        if (r < 0)
                return r;
        r = set_limits(e);
        if (r < 0)
                return r;
        return confine(uid, gid, e);
}

#ifdef VMM_SANITIZED
/* Shadow memory is as large as the address space. */
int jail_limit_sizes(uint64_t address_bytes, uint64_t file_bytes, ErrorText *e) {
        return set_limit(RLIMIT_FSIZE, "fsize", file_bytes, e);
}
#else
int jail_limit_sizes(uint64_t address_bytes, uint64_t file_bytes, ErrorText *e) {
        int r = set_limit(RLIMIT_AS, "as", address_bytes, e);
        return r < 0 ? r : set_limit(RLIMIT_FSIZE, "fsize", file_bytes, e);
}
#endif
