/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The asking side of a request-and-reply protocol on a SOCK_SEQPACKET socket: cubed towards its
 * VMMs and helpers.
 *
 * A packet is a PacketHeader and TLV records, maybe with descriptors. A request gets a seq and
 * exactly one call of its PacketReply: with the peer's answer, with -ETIMEDOUT, or with
 * -ECONNRESET when the client goes first. The peer is not trusted: packets, pending requests and
 * the send queue are bounded, and what breaks the protocol ends the connection.
 *
 * No event loop in here: the owner waits for packet_client_events() on the socket, then calls
 * packet_client_process(). One thread only (packets of all clients share a receive buffer). The
 * client may be freed in its own callbacks. */

#include <stdint.h>
#include <sys/types.h>

#include "base/tlv.h"

#define PACKET_FLAG_REPLY 1U
#define PACKET_SIZE_MAX (336U * 1024U)
#define PACKET_FDS_LIMIT 32U

typedef struct PacketHeader {
        uint32_t magic;
        uint16_t version;
        uint16_t op;
        uint32_t flags;
        uint32_t seq;
        int32_t error;
        uint32_t len;
} PacketHeader;

/* What came; data is borrowed, fds are closed after the callback but for those taken by TAKE_FD. */
typedef struct PacketBody {
        const uint8_t *data;
        size_t size;
        int *fds;
        size_t n_fds;
} PacketBody;

typedef struct PacketClient PacketClient;
/* error: 0 or negative errno. body is never NULL, and empty when the peer did not answer. */
typedef void (*PacketReply)(int error, const PacketBody *body, void *userdata);
typedef void (*PacketEvent)(uint16_t op, const PacketBody *body, void *userdata);

typedef struct PacketProtocol {
        uint32_t magic;
        uint16_t version;
        size_t max_pending;      /* requests without an answer yet */
        size_t max_queued_bytes; /* not yet taken by the socket */
        unsigned per_round;      /* packets that one packet_client_process() reads at most; 0: 16 */
        PacketEvent event;       /* NULL: the peer sends replies only */
} PacketProtocol;

/* Takes fd on success. protocol is borrowed for the client's life. */
int packet_client_new(int fd, const PacketProtocol *protocol, void *event_userdata, PacketClient **ret);
PacketClient *packet_client_free(PacketClient *c);
DEFINE_CLEANUP(PacketClient *, packet_client_free);

int packet_client_fd(const PacketClient *c);
/* EPOLLIN, and EPOLLOUT while something is queued. */
uint32_t packet_client_events(const PacketClient *c);
/* Reads and writes what is there, a bounded amount. Negative when the peer is gone or broke the
 * protocol: free the client then. */
int packet_client_process(PacketClient *c, uint32_t revents);

/* body may be NULL; fds stay the caller's. -EBUSY when too many requests are pending, -ENOBUFS
 * when the queue is full. -ENOTCONN: the peer is gone, which packet_client_process() is yet to tell.
 * timeout_usec: UINT64_MAX = none. */
int packet_client_call(PacketClient *c, uint16_t op, const TlvWriter *body, const int *fds, size_t n_fds,
                       uint64_t timeout_usec, PacketReply reply, void *userdata);

/* Of CLOCK_MONOTONIC: when packet_client_expire() has something to do; UINT64_MAX = never. */
uint64_t packet_client_deadline(const PacketClient *c);
void packet_client_expire(PacketClient *c, uint64_t now_usec);
