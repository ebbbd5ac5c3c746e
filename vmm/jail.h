/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the process gives up before it reads its first message.
 *
 * cubed starts a VMM as root, in pid, ipc, uts and network namespaces made for it. jail_enter() takes
 * a mount namespace of its own with an empty read-only root, closes every descriptor but the
 * standard streams and the listening socket, sets limits, becomes the sandbox's uid with no
 * capability left and no way to get one, and takes on what landlock can deny on this kernel. There is no
 * way back, and no switch to skip it. */

#include <sys/types.h>

#include "vmm/error.h"

/* Neither may be 0. */
int jail_enter(uid_t uid, gid_t gid, ErrorText *e);
/* Once the machine is built, and before guest code runs: what there is is mapped, and how large its files can become
 * is known. */
int jail_limit_sizes(uint64_t address_bytes, uint64_t file_bytes, ErrorText *e);
