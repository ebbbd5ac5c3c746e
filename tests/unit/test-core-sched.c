/* SPDX-License-Identifier: Apache-2.0 */

/* prctl() is the test's, since few kernels have core scheduling: what <linux/prctl.h> and kernel/sched/core_sched.c say of it. */

#include <linux/prctl.h>
#include <stdarg.h>
#include <sys/prctl.h>

#include "daemon/core-sched.h"
#include "tests/unit/test.h"

#define PARENT 1
#define OURSELVES 2
#define TASKS 6

static struct {
        int missing;              /* errno of a kernel or host without */
        int fail_share_to;
        unsigned long cookies[TASKS];
        unsigned long last;
        unsigned calls;
} kernel;

int __wrap_prctl(int option, ...);
pid_t __wrap_getppid(void);

pid_t __wrap_getppid(void) {
        return PARENT;
}

static int fail(int error) {
        errno = error;
        return -1;
}

int __wrap_prctl(int option, ...) {
        unsigned long command, pid, scope, *cookie;
        va_list ap;

        va_start(ap, option);
        command = va_arg(ap, unsigned long);
        pid = va_arg(ap, unsigned long);
        scope = va_arg(ap, unsigned long);
        cookie = va_arg(ap, unsigned long *);
        va_end(ap);

        kernel.calls++;
        if (option != PR_SCHED_CORE || kernel.missing)
                return fail(kernel.missing ?: EINVAL);
        if (pid >= TASKS)
                return fail(ESRCH);
        unsigned long *task = &kernel.cookies[pid ?: OURSELVES];
        switch (command) {
        case PR_SCHED_CORE_GET:
                if (scope != PR_SCHED_CORE_SCOPE_THREAD || !cookie)
                        return fail(EINVAL);
                *cookie = *task;
                return 0;
        case PR_SCHED_CORE_CREATE:
                if (cookie)
                        return fail(EINVAL);
                *task = ++kernel.last;
                return 0;
        case PR_SCHED_CORE_SHARE_TO:
                if (cookie || kernel.fail_share_to)
                        return fail(kernel.fail_share_to ?: EINVAL);
                *task = kernel.cookies[OURSELVES];
                return 0;
        case PR_SCHED_CORE_SHARE_FROM:
                if (cookie || scope != PR_SCHED_CORE_SCOPE_THREAD)
                        return fail(EINVAL);
                kernel.cookies[OURSELVES] = *task;
                return 0;
        default:
                return fail(EINVAL);
        }
}

static void boot(void) {
        memset(&kernel, 0, sizeof(kernel));
}

TEST(each_has_one_of_its_own) {
        boot();
        assert_ok(core_sched_new());
        unsigned long first = kernel.cookies[OURSELVES];
        assert_ok(core_sched_new());
        assert_true(first != 0 && kernel.cookies[OURSELVES] != 0 && kernel.cookies[OURSELVES] != first);
}

TEST(two_of_a_tenant_share_one_and_we_have_none_of_it) {
        boot();
        kernel.cookies[3] = 30;
        kernel.cookies[4] = 40;
        kernel.cookies[5] = 50;
        assert_ok(core_sched_share(3, 4));
        assert_eq(kernel.cookies[3], 30);
        assert_eq(kernel.cookies[4], 30);
        assert_eq(kernel.cookies[5], 50);
        assert_eq(kernel.cookies[OURSELVES], 0);
}

TEST(whoever_can_not_have_it_keeps_its_own) {
        boot();
        kernel.cookies[3] = 30;
        kernel.cookies[4] = 40;
        kernel.fail_share_to = EPERM;
        assert_eq(core_sched_share(3, 4), -EPERM);
        assert_eq(kernel.cookies[4], 40);
        assert_eq(kernel.cookies[OURSELVES], 0);
        assert_eq(core_sched_share(TASKS, 4), -ESRCH);
        assert_eq(kernel.cookies[4], 40);
        assert_eq(kernel.cookies[OURSELVES], 0);
}

TEST(that_we_keep_a_tenants_is_told) {
        boot();
        kernel.cookies[PARENT] = 10;
        kernel.cookies[3] = 30;
        assert_eq(core_sched_share(3, 4), -ESTALE);
}

TEST(hosts_without_do_without) {
        const int missing[] = { EINVAL, ENODEV };

        for (size_t i = 0; i < ELEMENTSOF(missing); i++) {
                boot();
                kernel.missing = missing[i];
                assert_ok(core_sched_new());
                assert_eq(core_sched_share(3, 4), -EOPNOTSUPP);
                assert_eq(kernel.calls, 2);
        }
}
