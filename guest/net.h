/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The guest's network card as a claim wants it: address, route, neighbour, MTU. Nothing is asked of the network for
 * that, and nothing is waited for.
 *
 * What users of the guest add by themselves stays; what an earlier claim had set and this one does not goes. So what
 * was set is kept, and is part of a snapshot as the addresses are. */

#include "base/agent-proto.h"
#include "base/macros.h"

#define NET_FAMILIES 2U
#define NET_MESSAGE_MAX 160

typedef struct NetConfig {
        AgentNetwork networks[NET_FAMILIES]; /* of different families; numbers as this CPU has them */
        unsigned n_networks;
        uint32_t mtu;                        /* 0: as it is */
} NetConfig;

/* -ENODEV: there is no card. An IPv6 network of a kernel without IPv6 is left out. before: what the last call made, and
 * what this one did. */
int net_configure(const NetConfig *c, NetConfig *before, char ret_message[static NET_MESSAGE_MAX]);
/* The card's number, or 0. */
uint32_t net_card(void);
