/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A child that asks NSS, which may ask the network: what it writes is its answer. */

#include <stdint.h>
#include <sys/types.h>

/* Writes its answer to fd; arg is the child's copy. */
typedef void (*NssChild)(int fd, const void *arg);

/* Waits until the child has ended, or written max bytes, or for timeout_usec: -ETIMEDOUT. It is gone when this returns.
 * For before the loop runs, or for little time. */
int nss_child_ask(NssChild f, const void *arg, uint64_t timeout_usec, void *ret, size_t max, size_t *ret_size);
