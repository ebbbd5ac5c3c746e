/* SPDX-License-Identifier: Apache-2.0 */

/* The LOAD request: a machine as a snapshot has it. Its shape is in the state file; what it stands on
 * are the memory layers and the disks, which are the same as for a boot. */

#include "base/fd-util.h"
#include "daemon/sandbox-attach.h"
#include "dbus/bus-errors.h"

/* In the VMM: mapping memory and making vCPUs; a busy host may take its time. */
#define LOAD_TIMEOUT_USEC (60 * USEC_PER_SEC)

int sandbox_send_load(Sandbox *s, VmmReply reply, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(65536);
        _cleanup_attached_ Attached a = { .writer = &w };

        int r = attach_machine(&a, s, error);
        if (r >= 0)
                r = attach_snapshot_file(&a, s->memory_top, VMM_FD_STATE, SNAPSHOT_FILE_STATE, error);
        if (r >= 0)
                r = attach_memory_layers(&a, s->memory_top, error);
        if (r >= 0)
                r = vmm_client_call(s->priv->vmm, VMM_OP_LOAD, &w, a.fds, a.n, LOAD_TIMEOUT_USEC, reply, s);
        if (r < 0)
                return sd_bus_error_is_set(error) ? r : sd_bus_error_set_errno(error, r);

        s->priv->kvm_fd = safe_close(s->priv->kvm_fd);
        s->priv->tap_fd = safe_close(s->priv->tap_fd);
        return 0;
}
