/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Servers on 127.0.0.1 and ::1 can be reached from outside, on the address of the network card.
 *
 * Two BPF programs (guest/bpf/loopback.bpf.c) see to it that nothing has to be asked for and nobody is in the way. One counts
 * the listening sockets of each port. The other gives a connection that comes by the card, to a port that only
 * loopback serves, to the listener of its family here, whatever the port. The agent accepts it, connects to the server, and
 * moves bytes (forward.h). So no port of the user's is taken: as soon as somebody listens on 0.0.0.0, he has it.
 *
 * The server sees the agent as its peer, 127.0.0.1 or ::1. UDP stays as it is. A server on [::] is taken to serve IPv4
 * as well, and one on any other address to serve its family from outside.
 *
 * Embedded in the Agent. Maps, programs and listeners are part of a snapshot; connections end with an epoch.
 * Without BPF or cgroups in the guest's kernel nothing of this exists. */

#include "guest/bpf/loopback.bpf.h"
#include "guest/loop.h"

/* Even a listener that takes the connections of all ports has to have one. Nobody but the superuser could want this. */
#define LOOPBACK_LISTENER_PORT 1U

typedef struct Forward Forward;

typedef enum LoopbackMap {
        LOOPBACK_CONFIG,
        LOOPBACK_PORTS,
        LOOPBACK_LISTENERS,
        _LOOPBACK_MAP_MAX,
} LoopbackMap;

typedef struct LoopbackListener {
        int fd;
        LoopSource source;
} LoopbackListener;

typedef struct Loopback {
        Loop *loop;             /* NULL: not there */
        uint64_t netns_cookie;
        int maps[_LOOPBACK_MAP_MAX];
        int count_link, steer_link;
        LoopbackListener listeners[LOOPBACK_N_LISTENERS];
        Forward *forwards;
        unsigned n_forwards;
} Loopback;

/* At once, since it must know of every listener of the guest from its beginning. Logs why there is none. */
void loopback_start(Loopback *l, Loop *loop);
/* The network card's number; 0: there is none. */
void loopback_set_card(Loopback *l, uint32_t index);
/* Connections of another copy of this guest are reset. */
void loopback_abandon(Loopback *l);
void loopback_done(Loopback *l);

/* For forward.c. */
void loopback_add(Loopback *l, Forward *f);
void loopback_remove(Loopback *l, Forward *f);
