/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A network policy with some rules more and some less. Rules are compared as they are written. */

#include "daemon/sandbox-policy.h"

/* What is in now stays in its order, without those of remove; what is in add comes behind it, if it was not there
 * already. -ESRCH: *ret_missing, to be removed, is not in now. The default stays. Release by sandbox_policy_done(). */
int policy_change(const SandboxPolicy *now, const SandboxPolicy *add, const SandboxPolicy *remove, SandboxPolicy *ret,
                  const char **ret_missing);
