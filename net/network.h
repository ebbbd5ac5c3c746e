/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sandbox network of this host: which slots are given out, which policies are loaded, the uplink, the
 * barriers. One in cube-netd, which calls it for requests and events; it may wait for the kernel. */

#include "net/datapath.h"
#include "net/resolver-sockets.h"
#include "net/slot.h"

typedef struct Network Network;

typedef struct NetworkConfig {
        const char *net4;      /* CIDR or "auto" */
        const char *net6;      /* NULL: no IPv6 */
        NetConfig filter;      /* without a resolver: the network's own */
} NetworkConfig;

/* error: what to tell people, of POLICY_ERROR_MAX bytes. */
int network_new(const char *pin_dir, const NetworkConfig *config, Network **ret, char *error);
Network *network_free(Network *n);
DEFINE_CLEANUP(Network *, network_free);

Datapath *network_datapath(Network *n);
const SlotPlan *network_plan(const Network *n);
/* "" when there is none */
const char *network_uplink(const Network *n);
int network_nft_fd(const Network *n);
const NetConfig *network_config(const Network *n);
/* Borrowed; none when the resolver is somebody else's. */
const ResolverSockets *network_resolver_sockets(const Network *n);

/* slot: 0 for any. */
int network_slot_new(Network *n, unsigned slot, unsigned *ret_slot, int *ret_netns, int *ret_tap, char *error);
void network_slot_keep(Network *n, unsigned slot, bool keep);
/* Nobody reaches it any more, and the host's connections to it are ended at both ends; at the host's, when its links are
 * gone. park: those that nobody has answered yet go on asking. */
int network_slot_quiesce(Network *n, unsigned slot, bool park, unsigned *ret_ended);
/* Its links are gone; what the host had open to it, or was about to open, is ended. False: there are some, the news was old. */
bool network_slot_gone(Network *n, unsigned slot);
/* The same for all whose links are found to be gone. */
void network_slots_check(Network *n);

typedef struct NetworkPolicy {
        uint32_t id, flags;
        bool special;
} NetworkPolicy;

int network_policy_load(Network *n, const Policy *p, NetworkPolicy *ret, char *error);
int network_policy_drop(Network *n, uint32_t id);
/* Called when one has been loaded, before anybody can name it, and when one is gone: then t is NULL. */
typedef void (*NetworkPolicyWatch)(uint32_t id, const PolicyTable *t, void *userdata);
void network_watch_policies(Network *n, NetworkPolicyWatch f, void *userdata);
/* t is NULL for one of a cube-netd before. */
void network_each_policy(Network *n, NetworkPolicyWatch f, void *userdata);
/* Of a slot, open flows judged again. p NULL: the policy `id`, which is loaded. */
int network_policy_set(Network *n, unsigned slot, const Policy *p, uint32_t id, NetworkPolicy *ret, char *error);

/* Every few seconds. */
void network_sweep(Network *n);
/* 1 when the uplink is another one. */
int network_find_uplink(Network *n);
/* 1 when something of ours may have changed; then network_nft_restore(), which returns 1 if so. */
int network_nft_event(Network *n);
int network_nft_restore(Network *n);
