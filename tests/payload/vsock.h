/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The guest's end of virtio vsock (virtio 1.2, 5.10): a few stream connections, no buffers of their
 * own. What comes is handed to a callback at once and counts as consumed unless the callback keeps
 * it; what goes is sent from where it lies, and is gone when vsock_send() returns. */

#include "virtio.h"

#define CONNS_MAX 96U

typedef struct Conn Conn;
struct Conn {
        enum { CONN_FREE, CONN_REQUESTED, CONN_OPEN } state;
        uint32_t local_port, host_port;
        uint32_t peer_alloc, peer_fwd, sent; /* towards the host */
        uint32_t consumed, reported;         /* from it */
        bool host_done;                      /* the host sends no more */
        bool done;                           /* we don't */

        /* The agent's. */
        enum { ROLE_UNKNOWN, ROLE_CONTROL, ROLE_STREAM, ROLE_WAIT, ROLE_SINK, ROLE_DEAF } role;
        struct Process *process;
        unsigned stream;
        uint8_t head[12];                    /* of the frame that is coming in */
        uint32_t head_have, body_left;
};

/* Called by vsock_poll(). */
void on_connect(Conn *c);                       /* RESPONSE to our request, or a request that was accepted */
void on_data(Conn *c, const uint8_t *data, uint32_t len);
void on_host_done(Conn *c);                     /* no more data will come */
void on_closed(Conn *c);                        /* reset: c is free after this */

/* Again: with what was there before gone, on both sides. */
bool vsock_init(void);
Conn *vsock_connect(uint32_t local_port, uint32_t host_port);
/* Packets that have come. False: none. */
bool vsock_poll(void);
/* How many bytes the host has room for. */
uint32_t vsock_room(const Conn *c);
/* At most 64 KiB and vsock_room(). */
void vsock_send(Conn *c, const void *data, uint32_t len);
/* len bytes that on_data() kept are used up. */
void vsock_consumed(Conn *c, uint32_t len);
/* We send no more; both: we want nothing more either. */
void vsock_shutdown(Conn *c, bool both);
/* Breaks it off; c is free after this. */
void vsock_abort(Conn *c);
/* Asks for a connection and forgets about it. */
void vsock_try(uint32_t local_port, uint32_t host_port);
/* What a host may have sent us without our consuming it. */
#define VSOCK_WINDOW 65536U
