/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The balloon (virtio 1.2, 5.5): memory that the guest lends to the host.
 *
 * It inflates to the size that the host asks for, and its pages go back to the host at once. Without
 * being asked a driver also reports pages that are free anyway. Either way the guest's memory stays
 * mapped, and what it finds in such a page later is not what it had left there: zeros, or the
 * template's bytes. PAGE_POISON, which would promise more, is not offered; nor is DEFLATE_ON_OOM, so
 * that a guest whose memory was taken away meets its own OOM killer before its limit's.
 *
 * Only pages of RAM are taken (P12). Pages that hold a ring are the guest's to lose: whatever is in
 * a ring, the queue's code copes with it. If the host's kernel won't take a page the device stops;
 * the memory is in place all the same. Lives on the loop's thread. */

#include "vmm/devices.h"
#include "vmm/snapshot-virtio.h"

#define BALLOON_PAGES_MAX 16384U /* in one request */

typedef struct VirtioBalloon VirtioBalloon;

int virtio_balloon_new(Vm *vm, Loop *loop, uint64_t bar_gpa, VirtioErrorFn on_error, void *on_error_userdata,
                       VirtioBalloon **ret);
VirtioBalloon *virtio_balloon_free(VirtioBalloon *b);
VirtioPci *virtio_balloon_pci(VirtioBalloon *b);

/* Asks the driver to make the balloon that large: a multiple of a page, else -EINVAL. How far it gets is the
 * guest's affair. */
int virtio_balloon_request(VirtioBalloon *b, uint64_t bytes);
/* With the guest's own figures as it last told them, and asks it for new ones: they are as old as
 * "guest-age-msec" says. */
void virtio_balloon_counters(VirtioBalloon *b, CounterFn fn, void *userdata);

/* Hands the driver's statistics back, so that the device holds nothing of the guest's: between
 * virtio_pci_drain() and virtio_pci_pause(). */
void virtio_balloon_settle(VirtioBalloon *b);
/* Loading a snapshot: all that it has of the balloon is the configuration that the transport keeps. */
int virtio_balloon_check(const VirtioBalloon *b, const VirtioState *transport, ErrorText *e);
/* Before snapshot_virtio_apply(), which else takes the configuration for changed. */
void virtio_balloon_apply(VirtioBalloon *b, const VirtioState *transport);
