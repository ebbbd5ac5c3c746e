/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The uids that VMMs run as: one for each sandbox, out of a range of our own.
 *
 * Owned by the Manager. Numbers are handed out in turn, so that one that was just given back is
 * the last to be used again. Given back only once its process has been reaped. */

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

typedef struct UidRange UidRange;

int uid_range_new(uint32_t base, uint32_t count, UidRange **ret);
UidRange *uid_range_free(UidRange *u);
DEFINE_CLEANUP(UidRange *, uid_range_free);

/* -ENOSPC when all are taken. */
int uid_range_acquire(UidRange *u, uint32_t *ret);
/* One in particular, of a sandbox that is taken over: -EBUSY, -ERANGE when outside. */
int uid_range_take(UidRange *u, uint32_t uid);
/* Outside numbers (of an earlier configuration) are ignored. */
void uid_range_release(UidRange *u, uint32_t uid);

/* Whether users, groups or subordinate ids of the host lie in it. NSS may ask the network: that
 * is done in a child, which gets timeout_usec. 1 and a text that names the first conflict, 0 when
 * there is none, negative when it could not be found out (-ETIMEDOUT). Waits; before the loop runs. */
int uid_range_check(uint32_t base, uint32_t count, uint64_t timeout_usec, char **ret_conflict);
