/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The network card (virtio 1.2, 5.1) over a tap: checksum and TCP segmentation offload both ways, mergeable
 * receive buffers, two queues. No control queue, and no MTU: that one is told by the agent.
 *
 * Frames go between the tap and the guest's memory without a copy, in the loop's thread. Nothing waits: a tap that
 * is full or a guest that has no buffers ends the visit, and whichever comes back to life starts the next one. What
 * can't be delivered is dropped and counted, as on any network. Without a tap the card is there with its link down. */

#include "vmm/devices.h"
#include "vmm/virtio-pci.h"

typedef struct VirtioNet VirtioNet;

/* Takes tap_fd in any case: behind tap_prepare(), or -EBADF. */
int virtio_net_new(Vm *vm, Loop *loop, uint64_t bar_gpa, int tap_fd, VirtioErrorFn on_error, void *on_error_userdata,
                   VirtioNet **ret);
VirtioNet *virtio_net_free(VirtioNet *n);
VirtioPci *virtio_net_pci(VirtioNet *n);
/* -EBADF without one, or when it is gone. Borrowed. */
int virtio_net_tap_fd(const VirtioNet *n);

/* With the vCPUs parked: sends what the guest has queued, and holds none of its buffers afterwards. What comes
 * meanwhile waits in the tap. */
void virtio_net_pause(VirtioNet *n);
/* Before the state of another guest is put in place. */
void virtio_net_forget(VirtioNet *n);
/* Also behind a state that was loaded: tells the tap again what the driver can take. */
void virtio_net_resume(VirtioNet *n);

/* Hears nothing while it is held: what comes waits in the tap. What the guest sends goes out. */
void virtio_net_hold(VirtioNet *n, bool hold);

void virtio_net_counters(VirtioNet *n, CounterFn fn, void *userdata);
