/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which of this host's kernels a template gets that was given none as a file.
 *
 * "small" is the one of guest/kernel, with all drivers built in, where the package or an admin has put it. "stock" is the newest
 * that Debian's packages have put into /boot. Without a name it is what KernelPath= says, else the stock one. */

#include "daemon/template.h"

#define GUEST_KERNEL_SMALL "small"
#define GUEST_KERNEL_STOCK "stock"

bool guest_kernel_name_valid(const char *name);

typedef struct GuestKernel {
        char *path;
        bool no_modules; /* it has none, and needs none */
} GuestKernel;

static inline void guest_kernel_done(GuestKernel *k) {
        free(k->path);
}

/* name and path may be NULL. -ENOENT when there is none, with what to do about it. Opens nothing. */
int guest_kernel_choose(const TemplateTools *tools, const char *name, const char *path, GuestKernel *ret,
                        char **ret_message);
