/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The tap that a guest's network card is plugged into: cubed's side made it, in a network namespace that the
 * VMM need not be in; here it is a descriptor that gives and takes frames, each behind a virtio_net_hdr.
 *
 * What the guest's driver can take is a setting of the tap, not of the descriptor: it is set when a driver starts,
 * and again when a guest goes on that was saved elsewhere. */

#include "vmm/error.h"

/* struct virtio_net_hdr_v1: modern devices always have num_buffers (virtio 1.2, 5.1.6.1). */
#define TAP_HEADER_BYTES 12U

/* Refuses what isn't such a tap; sets its header size, and that reading and writing never wait. */
int tap_prepare(int fd, ErrorText *e);
/* TUN_F_ bits: what may come out of it. */
int tap_set_offload(int fd, unsigned offload);
