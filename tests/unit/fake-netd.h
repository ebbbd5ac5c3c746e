/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cube-netd's end of the socket in the hands of a test: requests are taken, and answered or not, one by one. */

#include "daemon/host-network.h"
#include "net/net-proto.h"

typedef struct FakeRequest {
        uint16_t op;
        uint32_t seq, slot, policy;
        size_t n_fds;
        char texts[4][64];         /* ALLOW records, in order */
        size_t n_texts;
} FakeRequest;

typedef struct FakeNetd {
        Manager *manager;
        int fd;                    /* -EBADF while there is none */
        uint32_t next_slot, next_policy;
        int entries;               /* what a setup brings in place of the map of claims; <= 0: nothing that works */
} FakeNetd;

/* A new one, connected; that of before is gone. */
void fake_netd_start(FakeNetd *f);
void fake_netd_stop(FakeNetd *f);
/* The next request, which is this; the loop runs until it comes. */
FakeRequest fake_netd_take(FakeNetd *f, NetOp op);
/* None has come, with everything done that can be done without one. */
bool fake_netd_idle(FakeNetd *f);
/* As cube-netd would answer it; returns the slot or policy. */
uint32_t fake_netd_answer(FakeNetd *f, const FakeRequest *q);
void fake_netd_fail(FakeNetd *f, const FakeRequest *q, int error, const char *message);
/* The same with what an event says. */
void fake_netd_tell(FakeNetd *f, NetEvent event, const TlvWriter *body);
