/* SPDX-License-Identifier: Apache-2.0 */
#include <glob.h>

#include "daemon/image/modules-dep.h"
#include "daemon/image/slurp.h"
#include "test.h"

#include <fcntl.h>

static const char dep[] =
        "kernel/drivers/virtio/virtio_ring.ko:\n"
        "kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko\n"
        "kernel/drivers/block/virtio_blk.ko: kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko\n"
        "kernel/drivers/char/hw_random/virtio-rng.ko.xz: kernel/drivers/virtio/virtio.ko "
        "kernel/drivers/virtio/virtio_ring.ko\n"
        "kernel/fs/overlayfs/overlay.ko.zst:\n"
        "kernel/fs/erofs/erofs.ko:\n";
static const char builtin[] = "kernel/fs/ext4/ext4.ko\nkernel/drivers/virtio/virtio_pci.ko\n";

static Fault fault;

static int plan(const char *d, const char *b, const ModuleWish *w, size_t n, char *ret, size_t size) {
        _cleanup_(modules_plan_done) ModulesPlan p = {};
        int r;

        fault = (Fault) {};
        *ret = 0;
        r = modules_plan_make(d, b, w, n, &p, &fault);
        for (size_t i = 0; r >= 0 && i < p.n_modules; i++) {
                const char *slash = strrchr(p.modules[i].path, '/');
                strncat(ret, i > 0 ? " " : "", size - strlen(ret) - 1);
                strncat(ret, slash ? slash + 1 : p.modules[i].path, size - strlen(ret) - 1);
        }
        return r;
}

static int plan_one(const char *d, const char *name, char *ret, size_t size) {
        const ModuleWish w = { .name = name, .needed = "the test" };
        return plan(d, builtin, &w, 1, ret, size);
}

TEST(order) {
        const ModuleWish w[] = { { .name = "virtio_blk" }, { .name = "virtio_rng", .params = "a=1" }, { .name = "overlay" } };
        char out[512];

        assert_ok(plan(dep, builtin, w, ELEMENTSOF(w), out, sizeof(out)));
        assert_streq(out, "virtio_ring.ko virtio.ko virtio_blk.ko virtio-rng.ko.xz overlay.ko.zst");
}

TEST(built_in_ones_are_left_out) {
        char out[512];

        assert_ok(plan_one(dep, "ext4", out, sizeof(out)));
        assert_streq(out, "");
        assert_ok(plan_one(dep, "virtio-pci", out, sizeof(out)));
        assert_streq(out, "");
}

TEST(missing) {
        const ModuleWish optional = { .name = "pvpanic-pci" };
        const ModuleWish other = { .name = "squashfs", .needed = "the root image", .or = "erofs" };
        char out[512];

        assert_eq(plan_one(dep, "vsock", out, sizeof(out)), -ENOENT);
        assert_true(strstr(fault.text, "vsock") && strstr(fault.text, "the test"));
        assert_ok(plan(dep, builtin, &optional, 1, out, sizeof(out)));
        assert_streq(out, "");
        assert_ok(plan(dep, builtin, &other, 1, out, sizeof(out)));
        assert_eq(plan("", builtin, &other, 1, out, sizeof(out)), -ENOENT);
        assert_ok(plan("", "kernel/fs/erofs/erofs.ko", &other, 1, out, sizeof(out)));
}

TEST(names) {
        assert_true(module_path_is("a/b/virtio-rng.ko.xz", 20, "virtio_rng"));
        assert_true(module_path_is("virtio_rng.ko", 13, "virtio-rng"));
        assert_true(!module_path_is("virtio_rng.ko.gz", 16, "virtio_rng"));
        assert_true(!module_path_is("virtio_rng", 10, "virtio_rng"));
        assert_true(!module_path_is("xvirtio_rng.ko", 14, "virtio_rng"));
        assert_true(!module_path_is("", 0, "virtio_rng"));
        assert_true(!module_path_is(".ko", 3, "ko"));
}

TEST(evil_paths) {
        char out[512];

        assert_eq(plan_one("../../etc/m.ko:\n", "m", out, sizeof(out)), -EBADMSG);
        assert_eq(plan_one("/etc/m.ko:\n", "m", out, sizeof(out)), -EBADMSG);
        assert_eq(plan_one("a//m.ko:\n", "m", out, sizeof(out)), -EBADMSG);
        assert_eq(plan_one("a/../m.ko:\n", "m", out, sizeof(out)), -EBADMSG);
        assert_eq(plan_one("a/.hidden/m.ko:\n", "m", out, sizeof(out)), -EBADMSG);
        assert_eq(plan_one("a\x01/m.ko:\n", "m", out, sizeof(out)), -EBADMSG);
        assert_eq(plan_one("m.ko: ../x.ko\n", "m", out, sizeof(out)), -EBADMSG);
        assert_eq(plan_one("m.ko: x\n", "m", out, sizeof(out)), -EBADMSG);
        assert_eq(plan_one("m.ko: .ko\n", "m", out, sizeof(out)), -EBADMSG);
        assert_ok(plan_one("m.ko:   a/x.ko   \n", "m", out, sizeof(out)));
        assert_streq(out, "x.ko m.ko");
        assert_ok(plan_one("\n\n:\n: :\nx\nm.ko:", "m", out, sizeof(out)));
        assert_streq(out, "m.ko");
}

TEST(too_many) {
        _cleanup_free_ char *text = malloc(65536);
        char *p = text, out[512];

        p += sprintf(p, "m.ko:");
        for (int i = 0; i < 200; i++)
                p += sprintf(p, " x%d.ko", i);
        assert_eq(plan_one(text, "m", out, sizeof(out)), -E2BIG);

        /* the same one again and again is one */
        p = text + sprintf(text, "m.ko:");
        for (int i = 0; i < 200; i++)
                p += sprintf(p, " x.ko");
        assert_ok(plan_one(text, "m", out, sizeof(out)));
        assert_streq(out, "x.ko m.ko");

        memset(text, 'a', 65535);
        text[65535] = 0;
        memcpy(text + 60000, ".ko:", 4);
        assert_eq(plan_one(text, "m", out, sizeof(out)), -ENOENT);
}

TEST(junk) {
        unsigned x = 3;

        for (int round = 0; round < 2000; round++) {
                char text[200], out[512];
                static const char set[] = "ab.ko:/ \n-_xz";

                for (size_t i = 0; i < sizeof(text) - 1; i++)
                        text[i] = set[(x = x * 1103515245 + 12345, x >> 16) % (sizeof(set) - 1)];
                text[sizeof(text) - 1] = 0;
                (void) plan_one(text, "a", out, sizeof(out));
                (void) plan_one(dep, text, out, sizeof(out));
        }
}

/* In Debian's kernels everything is found, and each module comes after what it needs. */
TEST(real_kernels) {
        const char *cache = getenv("CUBE_CACHE"), *home = getenv("HOME");
        char pattern[512];
        glob_t found = {};

        (void) glob("/lib/modules/*/modules.dep", 0, NULL, &found);
        if (cache)
                (void) snprintf(pattern, sizeof(pattern), "%s/kernel/*/modules/modules.dep", cache);
        else
                (void) snprintf(pattern, sizeof(pattern), "%s/.cache/cubed/kernel/*/modules/modules.dep", home ? home : "");
        (void) glob(pattern, GLOB_APPEND, NULL, &found);
        if (found.gl_pathc == 0)
                test_skip("there are no kernel modules in /lib/modules or in the cache");

        for (size_t i = 0; i < found.gl_pathc; i++) {
                _cleanup_(modules_plan_done) ModulesPlan p = {};
                _cleanup_free_ uint8_t *d = NULL, *b = NULL;
                _cleanup_close_ int dir_fd = -EBADF;
                size_t size;

                *strrchr(found.gl_pathv[i], '/') = 0;
                dir_fd = open(found.gl_pathv[i], O_RDONLY|O_DIRECTORY|O_CLOEXEC);
                assert_ok(slurp_at(dir_fd, "modules.dep", MIB(16), &d, &size));
                assert_ok(slurp_at(dir_fd, "modules.builtin", MIB(16), &b, &size));
                fault = (Fault) {};
                assert_ok(modules_plan_make((char *) d, (char *) b, module_wishes, n_module_wishes, &p, &fault));
                printf("# %s: %zu modules, first %s\n", found.gl_pathv[i], p.n_modules, p.modules[0].path);
                assert_true(p.n_modules >= 10 && p.n_modules < 40);
                assert_true(strstr(p.modules[1].path, "pvpanic-pci"));
        }
        globfree(&found);
}
