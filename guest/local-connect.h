/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A connection to a server in the guest: to 127.0.0.1 and ::1 in turn, until one takes it. Embedded in what wants one. */

#include "guest/loop.h"

typedef struct LocalConnect LocalConnect;
/* fd: the connection, which is the callee's from here, or a negative errno. May free the LocalConnect. */
typedef void (*LocalConnectDone)(LocalConnect *c, int fd);

struct LocalConnect {
        Loop *loop;
        LoopSource source;
        int fd;
        uint16_t port;
        bool ipv6;              /* what is tried now */
        bool last;
        LocalConnectDone done;
        void *userdata;
};

/* May call done before it returns. ipv6_first: of the two. */
void local_connect_start(LocalConnect *c, Loop *loop, uint16_t port, bool ipv6_first, LocalConnectDone done,
                         void *userdata);
/* Gives up, if it is still trying: a server that has taken it meanwhile sees a reset. */
void local_connect_stop(LocalConnect *c);
