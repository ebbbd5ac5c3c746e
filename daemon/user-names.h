/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of users to their numbers. */

#include <stdint.h>
#include <sys/types.h>

/* names: separated by blanks. NSS may ask the network: that is done in a child, which gets timeout_usec. Names that there
 * are no users of stand in *ret_unknown, which is NULL when there are none; -E2BIG: more than max, or than 64;
 * -ETIMEDOUT. Waits for as long as that: before the loop runs, or for little. */
int user_names_find(const char *names, uint64_t timeout_usec, uint32_t *uids, size_t max, size_t *ret_n, char **ret_unknown);
