/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Answers cubed's requests. Owned by main of cube-netd. */

#include "base/packet-client.h"
#include "net/forward-chains.h"
#include "net/netd-resolver.h"
#include "net/network.h"

typedef struct Netd {
        int fd;                /* to cubed */
        const char *pin_dir;
        Network *network;      /* NULL before SETUP */
        uint8_t *setup;        /* how it was asked for */
        size_t setup_size;
        NetdResolver *resolver; /* NULL before SETUP, or when it can't listen */
        bool links_untold;     /* cubed has not listened when links went, and has to look at all */
        bool chains_known;     /* as forward_chains_find() told them; no ruleset has changed since */
        char chains[FORWARD_CHAINS_TEXT_MAX];
        int (*on_setup)(void *userdata);
        void *userdata;
} Netd;

/* One packet of cubed's; negative: the connection is of no use any more. */
int netd_handle(Netd *n, const uint8_t *packet, size_t size);
/* Tells cubed, unless it does not listen: then it is lost. */
void netd_tell_denied(Netd *n, const NetAuditEvent *event);
void netd_tell_name_denied(Netd *n, const NameDenied *denied);
void netd_tell_uplink(Netd *n);
void netd_tell_table(Netd *n);
void netd_tell_links_gone(Netd *n, unsigned slot);
