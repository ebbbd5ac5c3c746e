/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>

#include "daemon/image/initramfs.h"
#include "daemon/image/slurp.h"
#include "make-agent.h"
#include "temp-dir.h"
#include "test.h"

static const char dep[] =
        "k/virtio_pci.ko: k/virtio.ko\nk/virtio.ko:\nk/virtio_blk.ko: k/virtio.ko\n"
        "k/vmw_vsock_virtio_transport.ko.xz:\nk/squashfs.ko:\nk/overlay.ko:\nk/pvpanic-pci.ko:\n";
static const char builtin[] = "kernel/fs/ext4/ext4.ko\n";

static Fault fault;

static TempDir make_modules(void) {
        static const char *const files[] = {
                "k/virtio_pci.ko", "k/virtio.ko", "k/virtio_blk.ko", "k/vmw_vsock_virtio_transport.ko.xz",
                "k/squashfs.ko", "k/overlay.ko", "k/pvpanic-pci.ko",
        };
        TempDir d = temp_dir_make();
        MadeAgent agent = make_agent();

        assert(mkdirat(d.fd, "k", 0755) == 0);
        for (size_t i = 0; i < ELEMENTSOF(files); i++)
                temp_dir_write(&d, files[i], files[i], strlen(files[i]));
        temp_dir_write(&d, "modules.dep", dep, strlen(dep));
        temp_dir_write(&d, "modules.builtin", builtin, strlen(builtin));
        temp_dir_write(&d, "agent", &agent, sizeof(agent));
        return d;
}

static int make(const TempDir *d, bool modules, const char *out) {
        _cleanup_close_ int agent_fd = temp_dir_open(d, "agent", O_RDONLY);
        _cleanup_close_ int out_fd = temp_dir_open(d, out, O_RDWR|O_CREAT|O_TRUNC);

        fault = (Fault) {};
        return initramfs_write(agent_fd, modules ? d->fd : -EBADF, out_fd, &fault);
}

/* All names, and the text of modules.list. */
static void list(const TempDir *d, const char *path, char *names, size_t size, char *modules, size_t modules_size) {
        _cleanup_close_ int fd = temp_dir_open(d, path, O_RDONLY);
        struct archive *a = archive_read_new();
        struct archive_entry *e;

        assert(archive_read_support_format_cpio(a) == ARCHIVE_OK && archive_read_open_fd(a, fd, 4096) == ARCHIVE_OK);
        *names = *modules = 0;
        while (archive_read_next_header(a, &e) == ARCHIVE_OK) {
                const char *name = archive_entry_pathname(e);

                assert_eq(archive_entry_mtime(e), 0);
                assert_eq(archive_entry_uid(e), 0);
                strncat(names, name, size - strlen(names) - 1);
                strncat(names, " ", size - strlen(names) - 1);
                if (streq(name, "modules.list")) {
                        la_ssize_t n = archive_read_data(a, modules, modules_size - 1);
                        assert_true(n >= 0);
                        modules[n] = 0;
                }
        }
        archive_read_free(a);
}

TEST(content) {
        _cleanup_temp_dir_ TempDir d = make_modules();
        char names[2048], modules[1024];

        assert_ok(make(&d, true, "out"));
        list(&d, "out", names, sizeof(names), modules, sizeof(modules));
        assert_streq(names, "dev modules newroot proc run sys tmp dev/console dev/kmsg init "
                     "modules/pvpanic-pci.ko modules/virtio.ko modules/virtio_pci.ko modules/virtio_blk.ko "
                     "modules/vmw_vsock_virtio_transport.ko.xz modules/squashfs.ko modules/overlay.ko modules.list ");
        assert_streq(modules, "/modules/pvpanic-pci.ko\n/modules/virtio.ko\n/modules/virtio_pci.ko\n"
                     "/modules/virtio_blk.ko\n/modules/vmw_vsock_virtio_transport.ko.xz\n/modules/squashfs.ko\n"
                     "/modules/overlay.ko\n");
}

TEST(without_modules) {
        _cleanup_temp_dir_ TempDir d = make_modules();
        char names[2048], modules[1024];

        assert_ok(make(&d, false, "out"));
        list(&d, "out", names, sizeof(names), modules, sizeof(modules));
        assert_streq(names, "dev modules newroot proc run sys tmp dev/console dev/kmsg init modules.list ");
        assert_streq(modules, "");
}

TEST(same_bytes_again) {
        _cleanup_temp_dir_ TempDir d = make_modules();
        _cleanup_free_ uint8_t *a = NULL, *b = NULL;
        size_t n, m;

        assert_ok(make(&d, true, "one"));
        assert_ok(make(&d, true, "two"));
        assert_ok(slurp_at(d.fd, "one", MIB(1), &a, &n));
        assert_ok(slurp_at(d.fd, "two", MIB(1), &b, &m));
        assert_eq(n, m);
        assert_true(memcmp(a, b, n) == 0);
}

TEST(bad_agents) {
        _cleanup_temp_dir_ TempDir d = make_modules();
        MadeAgent agent = make_agent();

        agent.segment.p_type = PT_INTERP;
        temp_dir_write(&d, "agent", &agent, sizeof(agent));
        assert_eq(make(&d, true, "out"), -ENOEXEC);
        assert_true(strstr(fault.text, "static"));

        agent = make_agent();
        agent.header.e_phnum = 65535;
        temp_dir_write(&d, "agent", &agent, sizeof(agent));
        assert_eq(make(&d, true, "out"), -ENOEXEC);

        agent.header.e_phoff = UINT64_MAX - 10;
        temp_dir_write(&d, "agent", &agent, sizeof(agent));
        assert_eq(make(&d, true, "out"), -ENOEXEC);

        temp_dir_write(&d, "agent", "#!/bin/sh\n", 10);
        assert_eq(make(&d, true, "out"), -ENOEXEC);
}

TEST(modules_never_lead_out) {
        _cleanup_temp_dir_ TempDir d = make_modules();

        assert_true(unlinkat(d.fd, "k/overlay.ko", 0) == 0 && symlinkat("/etc/passwd", d.fd, "k/overlay.ko") == 0);
        assert_eq(make(&d, true, "out"), -ELOOP);
        assert_true(strstr(fault.text, "k/overlay.ko"));

        assert_true(unlinkat(d.fd, "k/overlay.ko", 0) == 0 && mkfifoat(d.fd, "k/overlay.ko", 0600) == 0);
        assert_eq(make(&d, true, "out"), -EINVAL);

        assert_true(unlinkat(d.fd, "k/overlay.ko", 0) == 0);
        assert_eq(make(&d, true, "out"), -ENOENT);

        assert_true(unlinkat(d.fd, "modules.dep", 0) == 0);
        assert_eq(make(&d, true, "out"), -ENOENT);
        assert_true(strstr(fault.text, "depmod"));
}

TEST(needed_module_missing) {
        _cleanup_temp_dir_ TempDir d = make_modules();

        temp_dir_write(&d, "modules.builtin", "", 0);
        assert_eq(make(&d, true, "out"), -ENOENT);
        assert_true(strstr(fault.text, "ext4"));
}
