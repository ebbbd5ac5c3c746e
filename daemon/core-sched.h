/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Core scheduling: hardware threads of one core run only who has the same cookie, so that what leaks between them leaks
 * within one tenant. A VMM is born with a cookie of its own, and is given that of another one of its tenant where there is one.
 *
 * Kernels without CONFIG_SCHED_CORE have none of it, nor do hosts without simultaneous multithreading. */

#include <sys/types.h>

/* Of the calling process, alone; its threads and children inherit it. 0 also where there are none. Only system calls. */
int core_sched_new(void);
/* to gets from's, and keeps its own when that fails. Both are processes that nobody has reaped. -EOPNOTSUPP: there are none. */
int core_sched_share(pid_t from, pid_t to);
