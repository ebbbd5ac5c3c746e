/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a guest sends: whether the header in front of a frame can be true (virtio 1.2, 5.1.6.2; P9). */

#include <linux/virtio_net.h>

#include "vmm/virt-chain.h"

/* Of a frame with its header: the largest IP packet, an Ethernet header, ours. */
#define NET_FRAME_MAX 65562U
#define NET_FRAME_MIN (sizeof(struct virtio_net_hdr_v1) + 14U)
/* Into how many packets the host cuts one frame at most: its time is what a tiny gso_size would take. */
#define NET_SEGMENTS_MAX 2048U

/* A copy of what the guest wrote. Puts it into the shape in which the tap takes it: what virtio says a device shall
 * ignore is cleared. Returns what is wrong with it, NULL: nothing. */
const char *net_header_check(struct virtio_net_hdr_v1 *h, uint64_t frame_bytes, uint64_t features);

/* Writes the frame of a chain to fd. 0: it is out. -EAGAIN: fd takes none now. -EBADMSG: the guest's fault, and
 * *ret_why says which. Another error: the host's. */
int net_send(int fd, const VirtChain *chain, const GuestMem *mem, uint64_t features, const char **ret_why);
