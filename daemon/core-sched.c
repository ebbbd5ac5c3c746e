/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/prctl.h>
#include <sys/prctl.h>

#include "base/macros.h"
#include "daemon/core-sched.h"

/* EINVAL: no such option of prctl(); ENODEV: the host has nothing to share. */
static int sched_core(unsigned long command, pid_t pid, unsigned long scope, unsigned long *ret_cookie) {
        if (prctl(PR_SCHED_CORE, command, (unsigned long) pid, scope, ret_cookie) >= 0)
                return 0;
        return errno == EINVAL || errno == ENODEV ? -EOPNOTSUPP : -errno;
}

int core_sched_new(void) {
        int r = sched_core(PR_SCHED_CORE_CREATE, 0, PR_SCHED_CORE_SCOPE_THREAD_GROUP, NULL);

        return r == -EOPNOTSUPP ? 0 : r;
}

/* A cookie goes from one to another only by way of who asks: our thread has it for a moment, and takes that of its parent
 * again, which started it. */
int core_sched_share(pid_t from, pid_t to) {
        unsigned long before = 0, after = 0;

        int r = sched_core(PR_SCHED_CORE_GET, 0, PR_SCHED_CORE_SCOPE_THREAD, &before);
        if (r >= 0)
                r = sched_core(PR_SCHED_CORE_SHARE_FROM, from, PR_SCHED_CORE_SCOPE_THREAD, NULL);
        if (r < 0)
                return r;
        int shared = sched_core(PR_SCHED_CORE_SHARE_TO, to, PR_SCHED_CORE_SCOPE_THREAD_GROUP, NULL);

        r = sched_core(PR_SCHED_CORE_SHARE_FROM, getppid(), PR_SCHED_CORE_SCOPE_THREAD, NULL);
        if (r >= 0)
                r = sched_core(PR_SCHED_CORE_GET, 0, PR_SCHED_CORE_SCOPE_THREAD, &after);
        if (r >= 0 && after != before)
                r = -ESTALE;
        return r < 0 ? r : shared;
}
