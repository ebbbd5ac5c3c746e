/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* From the kernel's start of /init in the initramfs to a guest whose root is the user's image with
 * everything mounted that a program expects. Needs nothing of the image: an empty one boots too.
 *
 * boot_kernel() comes first and has no way to fail but one that is logged; after it the host can be
 * talked to. boot_root() says in its message what stood in the way. */

#include "base/macros.h"
#include "guest/disk.h"

void boot_kernel(void);
int boot_root(char ret_message[static DISK_MESSAGE_MAX]);
