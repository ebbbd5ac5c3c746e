/* SPDX-License-Identifier: Apache-2.0 */

/* The BUILD request: the shape of the machine, and every descriptor that it is made of. */

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/sandbox-private.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"

/* One CPU boots; the agent brings up what was asked for. No i8042 to look for, no reboot method to
 * choose: the ACPI tables say it. A panic resets at once, so that the VMM sees it. */
#define CMDLINE_BASE "console=ttyS0 earlycon=uart8250,io,0x3f8 loglevel=4 panic=-1 maxcpus=1 nowatchdog random.trust_cpu=on"
/* In the VMM: building maps memory and makes vCPUs; a busy host may take its time. */
#define BUILD_TIMEOUT_USEC (60 * USEC_PER_SEC)

/* What goes along, in the order of the FD records. */
typedef struct Attached {
        TlvWriter *writer;
        int fds[VMM_FDS_MAX];
        size_t n;
        int opened[VMM_FDS_MAX];   /* those of them that are ours to close */
        size_t n_opened;
} Attached;

static void attached_done(Attached *a) {
        close_many(a->opened, a->n_opened);
}

static void attach(Attached *a, VmmFdRole role, int fd) {
        tlv_put_u32(a->writer, VMM_TAG_FD, role);
        a->fds[a->n++] = fd;
}

static int attach_opened(Attached *a, VmmFdRole role, int fd) {
        if (fd < 0)
                return fd;
        a->opened[a->n_opened++] = fd;
        attach(a, role, fd);
        return 0;
}

static int attach_template_file(Attached *a, const Sandbox *s, VmmFdRole role, TemplateFile file, sd_bus_error *error) {
        int fd = -EBADF;

        int r = template_open_file(s->priv->template, file, &fd);
        if (r < 0)
                return sd_bus_error_setf(error, BUS_ERROR_TEMPLATE_INVALID,
                                         "%s of template %s can't be used: %s; build it again", template_file_name(file),
                                         s->template_name, r == -ESTALE ? "it is not as large as when it was built" : strerror(-r));
        return attach_opened(a, role, fd);
}

static void put_disk(TlvWriter *w, uint32_t index, bool read_only, uint64_t base_bytes, uint64_t disk_bytes) {
        VmmDisk d = {
                .index = htole32(index),
                .read_only = htole32(read_only),
                .base_bytes = htole64(base_bytes),
                .disk_bytes = htole64(disk_bytes),
        };
        tlv_put(w, VMM_TAG_DISK, &d, sizeof(d));
}

static void put_kernel(TlvWriter *w, const KernelInfo *k) {
        tlv_put_u64(w, VMM_TAG_ENTRY, k->entry);
        for (size_t i = 0; i < k->n_segments; i++) {
                VmmSegment g = {
                        .gpa = htole64(k->segments[i].gpa),
                        .file_offset = htole64(k->segments[i].file_offset),
                        .file_bytes = htole64(k->segments[i].file_bytes),
                        .mem_bytes = htole64(k->segments[i].mem_bytes),
                };
                tlv_put(w, VMM_TAG_SEGMENT, &g, sizeof(g));
        }
}

static int put_cmdline(TlvWriter *w, const Sandbox *s) {
        const char *template = s->priv->template->cmdline, *own = s->manager->config.kernel_command_line;
        _cleanup_free_ char *line = NULL;

        if (asprintf(&line, "%s%s%s%s%s", CMDLINE_BASE, isempty(template) ? "" : " ", strempty(template),
                     isempty(own) ? "" : " ", strempty(own)) < 0) {
                line = NULL;
                return -ENOMEM;
        }
        tlv_put_str(w, VMM_TAG_CMDLINE, line);
        return 0;
}

static int put_machine(TlvWriter *w, const Sandbox *s) {
        const Manager *m = s->manager;
        const Template *t = s->priv->template;

        tlv_put_u64(w, VMM_TAG_MEM_BYTES, s->boot_mem_bytes);
        if (s->plug_bytes > 0)
                tlv_put_u64(w, VMM_TAG_PLUG_BYTES, s->plug_bytes);
        tlv_put_u32(w, VMM_TAG_CPUS, s->cpus);
        tlv_put_u32(w, VMM_TAG_MAX_CPUS, TEMPLATE_CPUS_MAX);
        tlv_put_u64(w, VMM_TAG_STOP_TIMEOUT_USEC, m->config.stop_timeout_usec);
        tlv_put_u32(w, VMM_TAG_UID, s->vmm_uid);
        tlv_put_u32(w, VMM_TAG_CPUID_HIDE, m->priv->hide_xsave ? VMM_CPUID_HIDE_XSAVE : 0);
        if (t->file_bytes[TEMPLATE_FILE_INITRAMFS] > 0)
                tlv_put_u64(w, VMM_TAG_INITRD_BYTES, t->file_bytes[TEMPLATE_FILE_INITRAMFS]);
        put_kernel(w, &t->kernel);
        put_disk(w, 0, true, t->file_bytes[TEMPLATE_FILE_ROOT], t->file_bytes[TEMPLATE_FILE_ROOT]);
        put_disk(w, 1, false, t->file_bytes[TEMPLATE_FILE_DISK], s->disk_bytes);
        return put_cmdline(w, s);
}

static int attach_files(Attached *a, const Sandbox *s, sd_bus_error *error) {
        const Template *t = s->priv->template;
        _cleanup_free_ char *exit_path = sandbox_path(s, "exit");

        if (!exit_path)
                return -ENOMEM;
        attach(a, VMM_FD_KVM, s->priv->kvm_fd);
        attach(a, VMM_FD_CONSOLE, s->priv->console_fd);
        int r = attach_opened(a, VMM_FD_EXIT, open(exit_path, O_WRONLY|O_CLOEXEC|O_NOFOLLOW));
        if (r < 0)
                return sd_bus_error_setf(error, BUS_ERROR_INTERNAL, "Can't open %s: %s", exit_path, strerror(errno));
        r = attach_template_file(a, s, VMM_FD_KERNEL, TEMPLATE_FILE_KERNEL, error);
        if (r >= 0 && t->file_bytes[TEMPLATE_FILE_INITRAMFS] > 0)
                r = attach_template_file(a, s, VMM_FD_INITRD, TEMPLATE_FILE_INITRAMFS, error);
        if (r >= 0)
                r = attach_template_file(a, s, VMM_FD_DISK_BASE, TEMPLATE_FILE_ROOT, error);
        if (r >= 0)
                r = attach_template_file(a, s, VMM_FD_DISK_BASE, TEMPLATE_FILE_DISK, error);
        if (r >= 0)
                attach(a, VMM_FD_DISK_OVERLAY, s->priv->overlay_fd);
        return r;
}

int sandbox_send_build(Sandbox *s, VmmReply reply, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(65536);
        _cleanup_(attached_done) Attached a = { .writer = &w };

        int r = put_machine(&w, s);
        if (r >= 0)
                r = attach_files(&a, s, error);
        if (r >= 0)
                r = vmm_client_call(s->priv->vmm, VMM_OP_BUILD, &w, a.fds, a.n, BUILD_TIMEOUT_USEC, reply, s);
        if (r < 0)
                return sd_bus_error_is_set(error) ? r : sd_bus_error_set_errno(error, r);

        /* The VMM's from here; a queued packet holds copies. */
        s->priv->kvm_fd = safe_close(s->priv->kvm_fd);
        s->priv->overlay_fd = safe_close(s->priv->overlay_fd);
        return 0;
}
