/* SPDX-License-Identifier: Apache-2.0 */

/* Which of the host's kernels a template gets. */

#include "daemon/guest-kernel.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

typedef struct Host {
        TempDir dir;
        char stock[256], small[256];
        TemplateTools tools;
} Host;

static void host_init(Host *h) {
        h->dir = temp_dir_make();
        (void) snprintf(h->stock, sizeof(h->stock), "%s/vmlinuz-6.1.0-57-cloud-amd64", h->dir.path);
        (void) snprintf(h->small, sizeof(h->small), "%s/vmlinux-small", h->dir.path);
        h->tools = (TemplateTools) { .boot_dir = h->dir.path, .small_kernel = h->small };
}

static void host_done(Host *h) {
        temp_dir_done(&h->dir);
}
#define _cleanup_host_ _cleanup_(host_done)

static void check(const Host *h, const char *name, const char *path, const char *expected, bool no_modules) {
        _cleanup_(guest_kernel_done) GuestKernel k = {};
        _cleanup_free_ char *message = NULL;

        assert_ok(guest_kernel_choose(&h->tools, name, path, &k, &message));
        assert_streq(k.path, expected);
        assert_eq(k.no_modules, no_modules);
        assert_true(!message);
}

TEST(small_and_stock_are_found_by_name_whatever_is_configured) {
        _cleanup_host_ Host h;

        host_init(&h);
        temp_dir_write(&h.dir, "vmlinuz-6.1.0-57-cloud-amd64", "", 0);
        temp_dir_write(&h.dir, "vmlinux-small", "", 0);
        check(&h, "small", "/boot/vmlinuz-x", h.small, true);
        check(&h, "stock", "/boot/vmlinuz-x", h.stock, false);
        check(&h, "stock", h.small, h.stock, false);
}

TEST(without_a_name_the_configured_one_else_the_stock_one) {
        _cleanup_host_ Host h;

        host_init(&h);
        temp_dir_write(&h.dir, "vmlinuz-6.1.0-57-cloud-amd64", "", 0);
        temp_dir_write(&h.dir, "vmlinux-small", "", 0);
        check(&h, NULL, NULL, h.stock, false);
        check(&h, NULL, "", h.stock, false);
        check(&h, NULL, "/boot/vmlinuz-x", "/boot/vmlinuz-x", false);
        check(&h, NULL, h.small, h.small, true);
}

TEST(what_is_not_installed_is_told_with_the_next_step) {
        _cleanup_free_ char *small = NULL, *stock = NULL;
        _cleanup_host_ Host h;
        GuestKernel k = {};

        host_init(&h);
        assert_eq(guest_kernel_choose(&h.tools, "small", NULL, &k, &small), -ENOENT);
        assert_true(strstr(small, h.small) && strstr(small, "dev/kernel build small"));
        assert_eq(guest_kernel_choose(&h.tools, "stock", h.small, &k, &stock), -ENOENT);
        assert_true(strstr(stock, "linux-image-cloud-amd64"));
        assert_true(!k.path);
}

TEST(other_names_are_none) {
        assert_true(guest_kernel_name_valid("small") && guest_kernel_name_valid("stock"));
        assert_true(!guest_kernel_name_valid("") && !guest_kernel_name_valid("Small") && !guest_kernel_name_valid("/boot/x"));
}
