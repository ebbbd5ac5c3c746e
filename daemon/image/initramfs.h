/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The archive that a guest kernel starts from: the agent as /init, the modules that it loads, and
 * /modules.list with their paths in load order, each with its parameters behind a blank.
 *
 * newc, not compressed: the VMM copies it anyway, and unpacking in the guest costs more than
 * reading. The same input makes the same bytes. */

#include "daemon/image/fault.h"

#define INITRAMFS_MODULES_DIR "/modules"
#define INITRAMFS_MODULES_LIST "/modules.list"

/* modules_fd: a directory /lib/modules/RELEASE, or negative for a kernel without modules.
 * -ENOEXEC when the agent is no static program for this machine. */
int initramfs_write(int agent_fd, int modules_fd, int out_fd, Fault *fault);
