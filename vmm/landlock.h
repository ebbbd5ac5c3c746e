/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Landlock, with no exception: no file is opened, run, made, removed, renamed or truncated by its path, no TCP port
 * bound or connected to, no abstract socket or process outside reached. Descriptors that were opened by somebody else
 * keep all that they allow, which is what the VMM works with.
 *
 * It stands behind the empty root and the system call filter, for the day on which one of them has a hole. */

#include "vmm/error.h"

/* For the calling thread, and all that it starts; it needs no_new_privs. Denies what this kernel can deny, and that
 * is nothing where it has no landlock: 0 then, else the version of its landlock. */
int landlock_deny_all(ErrorText *e);
