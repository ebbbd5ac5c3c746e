/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Descriptors that go along with a request to a VMM: the FD records and the list, in one order.
 *
 * Lives on the stack of who makes the request. Files that are opened for it are closed with it; the
 * packet holds copies. */

#include "daemon/sandbox-private.h"
#include "daemon/template-files.h"

typedef struct Attached {
        TlvWriter *writer;         /* borrowed */
        int fds[VMM_FDS_MAX];
        size_t n;
        int opened[VMM_FDS_MAX];   /* those of them that are ours to close */
        size_t n_opened;
} Attached;

void attached_done(Attached *a);
#define _cleanup_attached_ _cleanup_(attached_done)

/* fd stays the caller's. */
int attach(Attached *a, VmmFdRole role, int fd);
/* Takes fd; one that is negative is returned as the error it is. */
int attach_opened(Attached *a, VmmFdRole role, int fd);
int attach_template_file(Attached *a, const Sandbox *s, VmmFdRole role, TemplateFile file, sd_bus_error *error);

/* One file of each snapshot that top stands on, the lowest first, then of top itself, which may be NULL. */
int attach_memory_layers(Attached *a, Snapshot *top, sd_bus_error *error);
int attach_disk_layers(Attached *a, Snapshot *top, sd_bus_error *error);
/* Of the snapshot alone. */
int attach_snapshot_file(Attached *a, const Snapshot *n, VmmFdRole role, SnapshotFileKind file, sd_bus_error *error);

/* What BUILD and LOAD share: KVM, console, exit record, tap, both disks with their records and layers, time-outs. */
int attach_machine(Attached *a, const Sandbox *s, sd_bus_error *error);
