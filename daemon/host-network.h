/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The sandbox network of this host as cubed sees it: what cube-netd was set up with, the pool of free slots, and the
 * policies that are loaded.
 *
 * One, owned by the Manager, over its NetClient. It sets cube-netd up on each new connection, keeps the slots of paused
 * sandboxes, loads again what is in use, and refills the pool in the background; after cube-netd was away, running
 * sandboxes are given their policies again. What cube-netd tells (denied destinations, another uplink) it passes to the
 * audit. A claim is one write to a map, all else is asynchronous. */

#include "daemon/manager.h"
#include "daemon/sandbox-policy.h"
#include "net/net-client.h"

typedef struct HostNetwork HostNetwork;
typedef struct LoadedPolicy LoadedPolicy;

int host_network_new(Manager *m, HostNetwork **ret);
HostNetwork *host_network_free(HostNetwork *n);
DEFINE_CLEANUP(HostNetwork *, host_network_free);

/* What an admin is shown: "" where there is none. error: why there is no network; NULL when it is set up. */
typedef struct HostNetworkInfo {
        const char *net4, *net6, *uplink, *error;
        uint32_t mtu, n_free_slots;
} HostNetworkInfo;
void host_network_get_info(const HostNetwork *n, HostNetworkInfo *ret);

/* A place in the network, with nothing allowed yet: it is there for as long as one of the descriptors is. */
typedef struct NetworkSlot {
        uint32_t slot;
        uint32_t mtu;
        int netns_fd, tap_fd;
        char address4[16], address6[46];   /* "": none */
} NetworkSlot;

#define NETWORK_SLOT_INIT ((NetworkSlot) { .netns_fd = -EBADF, .tap_fd = -EBADF })

/* error: 0 or negative errno, then message is text for people. Take the fds by TAKE_FD. */
typedef void (*NetworkSlotDone)(int error, const char *message, NetworkSlot *slot, void *userdata);
/* slot 0: any, at once when one is free: then done has been called when this returns. */
int host_network_take_slot(HostNetwork *n, uint32_t slot, NetworkSlotDone done, void *userdata);
void host_network_cancel(HostNetwork *n, void *userdata);

/* A policy that cube-netd has tables of: shared by all that are equal, in use as long as somebody holds a reference, and
 * a while longer. */
LoadedPolicy *loaded_policy_ref(LoadedPolicy *p);
LoadedPolicy *loaded_policy_unref(LoadedPolicy *p);
DEFINE_CLEANUP(LoadedPolicy *, loaded_policy_unref);
const SandboxPolicy *loaded_policy_rules(const LoadedPolicy *p);
/* Opens special ranges or addresses of the host, which only those may whom an admin allowed to. */
bool loaded_policy_is_special(const LoadedPolicy *p);

/* p is valid during the call: to be referenced. -EINVAL, -E2BIG: message says which rule and why. */
typedef void (*PolicyLoadDone)(int error, const char *message, LoadedPolicy *p, void *userdata);
/* At once when it is loaded already: then done has been called when this returns. */
int host_network_load_policy(HostNetwork *n, const SandboxPolicy *rules, PolicyLoadDone done, void *userdata);
/* Those that are always there. */
LoadedPolicy *host_network_deny_policy(HostNetwork *n);
LoadedPolicy *host_network_internet_policy(HostNetwork *n);
