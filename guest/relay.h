/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A raw stream between the host's connection and an fd in the guest: a pipe, a terminal's master
 * or a TCP socket. Embedded in a stream kind's state; the local fd stays its owner's. */

#include "guest/pump.h"
#include "guest/stream.h"

typedef struct Relay {
        Stream *stream;
        int local_fd;
        LoopSource local;
        uint32_t local_events;
        Pump up;                /* host to local */
        Pump down;              /* local to host */
        bool up_open;
        bool down_open;
} Relay;

/* What relay_run() found, each once. */
#define RELAY_UP_END 1          /* the host ended its direction, and all it sent is delivered */
#define RELAY_DOWN_END 2        /* the local side ended, and all it wrote is delivered */
#define RELAY_HOST_GONE 4       /* nobody is there to read any more */
#define RELAY_LOCAL_GONE 8      /* the local side takes nothing any more */

int relay_init(Relay *r, Stream *s, int local_fd, bool up, bool down);
int relay_run(Relay *r, uint32_t events);
void relay_done(Relay *r);
