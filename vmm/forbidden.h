/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What becomes of a VMM whose thread makes a system call that its filter forbids: the process ends, and its exit record
 * names call and thread. The call is not made, whatever happens here.
 *
 * The filter raises SIGSYS, whose handler this is. It can't be taken away once guest code runs, since no filter allows
 * rt_sigaction() then; who blocks the signal, or has no stack for it, is killed by the kernel. */

#include "vmm/error.h"

/* Before there is a second thread, and before the first filter. */
int forbidden_calls_catch(ErrorText *e);
/* Where the exit record goes; -EBADF: to nobody. Borrowed, before guest code runs. */
void forbidden_calls_report_to(int exit_fd);
/* Of the calling thread, for the record. A constant. */
void forbidden_calls_name_thread(const char *name);
