/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Kernel modules from the initramfs, in the order of /modules.list: one "PATH [PARAMETERS]" a line,
 * as the host worked it out for this kernel; # starts a comment. A module that is there already is
 * fine, and one that fails is reported and passed over: what really lacks shows up soon after. */

#include "base/macros.h"

#define MODULES_LIST "/modules.list"

/* -ENOENT when there is no list: everything is built in. */
int modules_load(const char *list);
