/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd-util.h"
#include "vmm/landlock.h"

/* Of <linux/landlock.h>, which the headers of Debian 12 have up to version 2. */
typedef struct Ruleset {
        uint64_t handled_fs;
        uint64_t handled_net;
        uint64_t scoped;
} Ruleset;

#define RULESET_VERSION 1U

/* All rights up to the one that a version brought. */
#define FS_VERSION_1 ((1ULL << 13) - 1) /* execute to make_sym */
#define FS_REFER (1ULL << 13)
#define FS_TRUNCATE (1ULL << 14)
#define FS_IOCTL_DEV (1ULL << 15)
#define NET_TCP 3ULL                    /* bind, connect */
#define SCOPED 3ULL                     /* abstract unix sockets, signals */

static Ruleset everything(int version) {
        Ruleset r = { .handled_fs = FS_VERSION_1 };

        if (version >= 2)
                r.handled_fs |= FS_REFER;
        if (version >= 3)
                r.handled_fs |= FS_TRUNCATE;
        if (version >= 4)
                r.handled_net = NET_TCP;
        if (version >= 5)
                r.handled_fs |= FS_IOCTL_DEV;
        if (version >= 6)
                r.scoped = SCOPED;
        return r;
}

/* What a version does not know has to be zeros, which an older kernel takes at any length. */
int landlock_deny_all(ErrorText *e) {
        int version = (int) syscall(SYS_landlock_create_ruleset, NULL, 0, RULESET_VERSION);
        if (version < 0)
                return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : error_set_errno(e, -errno, "jail: version of landlock");

        Ruleset ruleset = everything(version);
        _cleanup_close_ int fd = (int) syscall(SYS_landlock_create_ruleset, &ruleset, sizeof(ruleset), 0);
        if (fd < 0)
                return error_set_errno(e, -errno, "jail: landlock, version %d", version);
        if (syscall(SYS_landlock_restrict_self, fd, 0) < 0)
                return error_set_errno(e, -errno, "jail: taking on landlock");
        return version;
}
