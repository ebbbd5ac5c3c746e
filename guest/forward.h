/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One connection from outside that the agent passes on to a server on loopback (guest/loopback.h).
 *
 * Owned by the list of its Loopback, which it leaves when it ends: when both directions have, when either side is gone, or
 * when no server took it, which the client sees as a reset. */

#include "guest/list.h"
#include "guest/local-connect.h"
#include "guest/pump.h"

typedef struct Loopback Loopback;
typedef struct Forward Forward;

/* A side's pump takes from it and gives to the other. */
typedef struct ForwardSide {
        Forward *forward;
        int fd;
        LoopSource source;
        Pump pump;
        bool open;              /* the pump has not come to its end */
        bool failed;            /* reset, or timed out */
} ForwardSide;

struct Forward {
        LIST_FIELDS(Forward);
        Loopback *loopback;
        ForwardSide outside, server;
        LocalConnect connect;
};

/* Takes fd, an accepted connection, which it closes at an error too. */
int forward_new(Loopback *l, int fd);
/* Both sides are reset. */
void forward_abandon(Forward *f);
