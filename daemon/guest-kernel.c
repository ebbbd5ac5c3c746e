/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "daemon/guest-kernel.h"
#include "daemon/template-params.h"

bool guest_kernel_name_valid(const char *name) {
        return streq(name, GUEST_KERNEL_SMALL) || streq(name, GUEST_KERNEL_STOCK);
}

static int find_small(const TemplateTools *tools, char **ret_path, char **ret_message) {
        if (access(tools->small_kernel, F_OK) < 0) {
                int r = -errno;

                if (asprintf(ret_message,
                             "the small kernel is not installed (%s: %s): make it with `dev/kernel build small` in the "
                             "source tree and put its vmlinux there, or take the stock kernel",
                             tools->small_kernel, strerror(-r)) < 0)
                        *ret_message = NULL;
                return r;
        }
        *ret_path = strdup(tools->small_kernel);
        return *ret_path ? 0 : -ENOMEM;
}

static int find_stock(const TemplateTools *tools, char **ret_path, char **ret_message) {
        int r = template_default_kernel(tools->boot_dir, ret_path);
        if (r < 0 && r != -ENOMEM &&
            asprintf(ret_message,
                     "there is no kernel for guests in %s: install linux-image-cloud-amd64, or set KernelPath=",
                     tools->boot_dir) < 0)
                *ret_message = NULL;
        return r;
}

int guest_kernel_choose(const TemplateTools *tools, const char *name, const char *path, GuestKernel *ret,
                        char **ret_message) {
        GuestKernel k = {};
        int r;

        if (name && streq(name, GUEST_KERNEL_SMALL))
                r = find_small(tools, &k.path, ret_message);
        else if (name || isempty(path))
                r = find_stock(tools, &k.path, ret_message);
        else {
                k.path = strdup(path);
                r = k.path ? 0 : -ENOMEM;
        }
        if (r < 0)
                return r;
        /* By KernelPath= as well. */
        k.no_modules = streq(k.path, tools->small_kernel);
        *ret = k;
        return 0;
}
