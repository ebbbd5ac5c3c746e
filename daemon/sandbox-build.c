/* SPDX-License-Identifier: Apache-2.0 */

/* The BUILD request: the shape of the machine, and every descriptor that it is made of. */

#include <endian.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/sandbox-attach.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"

/* One CPU boots; the agent brings up what was asked for. No i8042 to look for, no reboot method to
 * choose: the ACPI tables say it. A panic resets at once, so that the VMM sees it. */
#define CMDLINE_BASE "console=ttyS0 earlycon=uart8250,io,0x3f8 loglevel=4 panic=-1 maxcpus=1 nowatchdog random.trust_cpu=on"
/* In the VMM: building maps memory and makes vCPUs; a busy host may take its time. */
#define BUILD_TIMEOUT_USEC (60 * USEC_PER_SEC)

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

static int put_machine(Attached *a, const Sandbox *s, sd_bus_error *error) {
        const Template *t = s->priv->template;
        TlvWriter *w = a->writer;

        tlv_put_u64(w, VMM_TAG_MEM_BYTES, s->boot_mem_bytes);
        if (s->plug_bytes > 0)
                tlv_put_u64(w, VMM_TAG_PLUG_BYTES, s->plug_bytes);
        tlv_put_u32(w, VMM_TAG_MAX_CPUS, TEMPLATE_CPUS_MAX);
        tlv_put_u32(w, VMM_TAG_CPUID_HIDE, s->manager->priv->hide_xsave ? VMM_CPUID_HIDE_XSAVE : 0);
        put_kernel(w, &t->kernel);
        int r = put_cmdline(w, s);
        if (r >= 0)
                r = attach_template_file(a, s, VMM_FD_KERNEL, TEMPLATE_FILE_KERNEL, error);
        if (r < 0 || t->file_bytes[TEMPLATE_FILE_INITRAMFS] == 0)
                return r;
        tlv_put_u64(w, VMM_TAG_INITRD_BYTES, t->file_bytes[TEMPLATE_FILE_INITRAMFS]);
        return attach_template_file(a, s, VMM_FD_INITRD, TEMPLATE_FILE_INITRAMFS, error);
}

int sandbox_send_build(Sandbox *s, VmmReply reply, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(65536);
        _cleanup_attached_ Attached a = { .writer = &w };

        int r = attach_machine(&a, s, error);
        if (r >= 0)
                r = put_machine(&a, s, error);
        if (r >= 0)
                r = vmm_client_call(s->priv->vmm, VMM_OP_BUILD, &w, a.fds, a.n, BUILD_TIMEOUT_USEC, reply, s);
        if (r < 0)
                return sd_bus_error_is_set(error) ? r : sd_bus_error_set_errno(error, r);

        /* The VMM's from here; a queued packet holds copies. */
        s->priv->kvm_fd = safe_close(s->priv->kvm_fd);
        s->priv->tap_fd = safe_close(s->priv->tap_fd);
        return 0;
}
