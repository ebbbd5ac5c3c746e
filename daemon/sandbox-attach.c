/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "daemon/sandbox-attach.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"

static_assert(VMM_FDS_MAX <= PACKET_FDS_LIMIT, "what a VMM takes fits a packet");

void attached_done(Attached *a) {
        close_many(a->opened, a->n_opened);
}

int attach(Attached *a, VmmFdRole role, int fd) {
        if (a->n == ELEMENTSOF(a->fds))
                return -E2BIG;
        tlv_put_u32(a->writer, VMM_TAG_FD, role);
        a->fds[a->n++] = fd;
        return 0;
}

int attach_opened(Attached *a, VmmFdRole role, int fd) {
        if (fd < 0)
                return fd;
        int r = attach(a, role, fd);
        if (r < 0) {
                safe_close(fd);
                return r;
        }
        a->opened[a->n_opened++] = fd;
        return 0;
}

int attach_template_file(Attached *a, const Sandbox *s, VmmFdRole role, TemplateFile file, sd_bus_error *error) {
        int fd = -EBADF;

        int r = template_open_file(s->priv->template, file, &fd);
        if (r < 0)
                return sd_bus_error_setf(error, BUS_ERROR_TEMPLATE_INVALID,
                                         "%s of template %s can't be used: %s; build it again", template_file_name(file),
                                         s->template_name, r == -ESTALE ? "it is not as large as when it was built" : strerror(-r));
        return attach_opened(a, role, fd);
}

int attach_snapshot_file(Attached *a, const Snapshot *n, VmmFdRole role, SnapshotFileKind file, sd_bus_error *error) {
        static const char *const what[_SNAPSHOT_FILE_MAX] = {
                [SNAPSHOT_FILE_STATE] = "state",
                [SNAPSHOT_FILE_MEMORY] = "memory",
                [SNAPSHOT_FILE_DISK] = "disk",
        };
        int fd = -EBADF;

        int r = snapshot_open_file(n, file, &fd);
        if (r < 0)
                return sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_INVALID, "The %s file of snapshot %s can't be used: %s", what[file], n->id,
                                         r == -ESTALE ? "it is not as large as when it was saved" : strerror(-r));
        return attach_opened(a, role, fd);
}

static int attach_layers(Attached *a, Snapshot **chain, int n, VmmFdRole role, SnapshotFileKind file, sd_bus_error *error) {
        int r = n < 0 ? n : 0;

        for (int i = 0; i < n && r >= 0; i++)
                r = attach_snapshot_file(a, chain[i], role, file, error);
        return r;
}

int attach_memory_layers(Attached *a, Snapshot *top, sd_bus_error *error) {
        Snapshot *chain[SNAPSHOT_LAYERS_MAX];

        if (!top)
                return 0;
        int n = snapshot_memory_chain(top, chain, ELEMENTSOF(chain));
        return attach_layers(a, chain, n, VMM_FD_LAYER, SNAPSHOT_FILE_MEMORY, error);
}

int attach_disk_layers(Attached *a, Snapshot *top, sd_bus_error *error) {
        Snapshot *chain[VMM_DISK_LAYERS_MAX];

        if (!top)
                return 0;
        int n = snapshot_disk_chain(top, chain, ELEMENTSOF(chain));
        return attach_layers(a, chain, n, VMM_FD_DISK_LAYER, SNAPSHOT_FILE_DISK, error);
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

static int attach_disks(Attached *a, const Sandbox *s, sd_bus_error *error) {
        const Template *t = s->priv->template;

        put_disk(a->writer, 0, true, t->file_bytes[TEMPLATE_FILE_ROOT], t->file_bytes[TEMPLATE_FILE_ROOT]);
        put_disk(a->writer, 1, false, t->file_bytes[TEMPLATE_FILE_DISK], s->disk_bytes);
        int r = attach_template_file(a, s, VMM_FD_DISK_BASE, TEMPLATE_FILE_ROOT, error);
        if (r >= 0)
                r = attach_template_file(a, s, VMM_FD_DISK_BASE, TEMPLATE_FILE_DISK, error);
        if (r >= 0)
                r = attach_disk_layers(a, s->disk_top, error);
        return r < 0 ? r : attach(a, VMM_FD_DISK_OVERLAY, s->priv->overlay_fd);
}

int attach_machine(Attached *a, const Sandbox *s, sd_bus_error *error) {
        _cleanup_free_ char *exit_path = sandbox_path(s, "exit");

        if (!exit_path)
                return -ENOMEM;
        tlv_put_u64(a->writer, VMM_TAG_STOP_TIMEOUT_USEC, s->manager->config.stop_timeout_usec);
        tlv_put_u32(a->writer, VMM_TAG_UID, s->vmm_uid);
        tlv_put_u32(a->writer, VMM_TAG_CPUS, s->cpus);
        int r = attach(a, VMM_FD_KVM, s->priv->kvm_fd);
        if (r >= 0)
                r = attach(a, VMM_FD_CONSOLE, s->priv->console_fd);
        if (r >= 0 && s->priv->tap_fd >= 0)
                r = attach(a, VMM_FD_TAP, s->priv->tap_fd);
        if (r < 0)
                return r;
        r = attach_opened(a, VMM_FD_EXIT, open(exit_path, O_WRONLY|O_CLOEXEC|O_NOFOLLOW));
        if (r < 0)
                return sd_bus_error_setf(error, BUS_ERROR_INTERNAL, "Can't open %s: %s", exit_path, strerror(errno));
        return attach_disks(a, s, error);
}
