/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The block device (virtio 1.2, 5.2) over an Overlay: IN, OUT, FLUSH, GET_ID.
 *
 * Requests are done one after another with plain file I/O, which may wait; so it lives on a thread of
 * its own, that of the loop it is given (devices.c: one for all disks). What the host's file
 * system refuses (full, broken) is an I/O error in the guest and a message on the host, never more. */

#include "vmm/devices.h"
#include "vmm/overlay.h"
#include "vmm/virtio-pci.h"

typedef struct VirtioBlk VirtioBlk;

/* Takes config's fds in any case. name: "vda". */
int virtio_blk_new(Vm *vm, uint64_t bar_gpa, const char *name, DiskConfig *config, VirtioErrorFn on_error,
                   void *on_error_userdata, VirtioBlk **ret, ErrorText *e);
VirtioBlk *virtio_blk_free(VirtioBlk *b);
VirtioPci *virtio_blk_pci(VirtioBlk *b);
/* What it reads and writes through; to be changed while its thread is parked. */
Overlay *virtio_blk_overlay(VirtioBlk *b);
/* Any thread. Held, it begins no other request behind the one that is under way; what waits is served when it is let go. */
void virtio_blk_hold(VirtioBlk *b, bool hold);
void virtio_blk_counters(VirtioBlk *b, CounterFn fn, void *userdata);
