/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One connection of cubed's to the control socket: whole messages in, whole messages out.
 *
 * Sending never waits. What the socket does not take is queued, and the queue is bounded: above
 * PEER_QUEUE_HIGH no more requests are read and on_pressure(true) asks to hold back what makes events.
 * There is room above it for all that is under way by then; a peer that lets even that fill up is cut
 * off, and may come back. Owned by the control object, lives on the loop's thread. */

#include "base/tlv.h"
#include "base/vmm-proto.h"
#include "vmm/loop.h"

#define PEER_QUEUE_HIGH KIB(256)
#define PEER_QUEUE_MAX MIB(2)
/* A process may have 1,024, and each is one of ours while it waits. */
#define PEER_QUEUED_FDS_HIGH 64U
#define PEER_FDS_MAX 3U

typedef struct Peer Peer;

typedef struct PeerEvents {
        /* A message with a sound header. records: head->len bytes. fds that are not set to -EBADF are
         * closed on return. */
        void (*on_message)(void *userdata, const VmmMessage *head, const uint8_t *records, int *fds,
                           size_t n_fds);
        void (*on_pressure)(void *userdata, bool high);
        /* It left, or broke the protocol: to be freed, in this call or later. The last one. */
        void (*on_gone)(void *userdata);
        void *userdata;
} PeerEvents;

/* Takes fd in any case. */
int peer_new(Loop *loop, int fd, const PeerEvents *events, Peer **ret);
Peer *peer_free(Peer *p);

/* head->len is filled in. records may be NULL. fds, at most PEER_FDS_MAX, stay the caller's.
 * What cannot be sent or queued is lost, and the peer with it. */
void peer_send(Peer *p, VmmMessage head, const TlvWriter *records, const int *fds, size_t n_fds);
/* Gives the queue some time to drain, before the process ends. */
void peer_flush(Peer *p, uint64_t timeout_usec);
