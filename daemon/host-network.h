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
#include "dbus/bus-errors.h"
#include "net/net-client.h"

typedef struct HostNetwork HostNetwork;
typedef struct LoadedPolicy LoadedPolicy;

int host_network_new(Manager *m, HostNetwork **ret);
HostNetwork *host_network_free(HostNetwork *n);
DEFINE_CLEANUP(HostNetwork *, host_network_free);

/* Once there is a NetClient, before the loop runs. */
void host_network_start(HostNetwork *n);
/* On each new connection to cube-netd. */
void host_network_attached(HostNetwork *n);
/* A new template's policy is loaded ahead of its sandboxes. */
void host_network_add_template(HostNetwork *n, const Template *t);
/* Where own has 0 that of base. */
NetLimits net_limits_over(const NetLimits *own, const NetLimits *base);
/* Any of them. */
bool net_limits_given(const NetLimits *l);
/* own as in SandboxSpec, configured as in Config; 0: none. */
NetLimits net_limits_resolve(const NetLimits *own, const NetLimits *configured);
/* Configuration was read again: size of the pool. */
void host_network_reload(HostNetwork *n);

/* What an admin is shown: "" where there is none. error: why there is no network; NULL when it is set up. */
typedef struct HostNetworkInfo {
        const char *net4, *net6, *uplink, *error;
        uint32_t mtu, n_free_slots;
} HostNetworkInfo;
void host_network_get_info(const HostNetwork *n, HostNetworkInfo *ret);
/* Why it could not be set up, and what to do; NULL: it is, or will be in a moment. */
const char *host_network_failure(const HostNetwork *n);

/* cube-netd went, or is not there: what was asked of it can be asked again after host_network_wait(). */
static inline bool netd_is_away(int error) {
        return error == -ENOTCONN || error == -ECONNRESET;
}

/* The bus error of what came to nothing. */
static inline const char *network_error_name(int error) {
        switch (error) {
        case -EINVAL:
        case -E2BIG:
                return BUS_ERROR_INVALID_ARGUMENT;
        case -ENETDOWN:
                return BUS_ERROR_HOST_UNSUPPORTED;
        case -ENOMEM:
        case -ENOSPC:
                return BUS_ERROR_NO_RESOURCES;
        default:
                return BUS_ERROR_INTERNAL;
        }
}

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
/* Closes its descriptors where that holds nobody up. */
void host_network_drop_slot(HostNetwork *n, int netns_fd, int tap_fd);
/* Of a sandbox that is paused: given to nobody else. */
void host_network_keep_slot(HostNetwork *n, uint32_t slot, bool keep);
/* Whatever was asked for with this userdata is called back no more. */
void host_network_cancel(HostNetwork *n, void *userdata);

/* done is called once the network is set up, at once when it is, or when that failed. */
bool host_network_is_ready(const HostNetwork *n);
typedef void (*NetworkReady)(int error, const char *message, void *userdata);
int host_network_wait(HostNetwork *n, NetworkReady ready, void *userdata);

/* A policy that cube-netd has tables of: shared by all that are equal, in use as long as somebody holds a reference, and
 * a while longer. */
LoadedPolicy *loaded_policy_ref(LoadedPolicy *p);
LoadedPolicy *loaded_policy_unref(LoadedPolicy *p);
DEFINE_CLEANUP(LoadedPolicy *, loaded_policy_unref);
const SandboxPolicy *loaded_policy_rules(const LoadedPolicy *p);
/* What a claim writes; false while cube-netd has no tables of it: loaded_policy_load(). */
bool loaded_policy_get_entry(const LoadedPolicy *p, uint32_t *ret_policy, uint32_t *ret_flags);
/* Opens special ranges or addresses of the host, which only those may whom an admin allowed to. Known once it is loaded. */
bool loaded_policy_is_special(const LoadedPolicy *p);

/* p is valid during the call: to be referenced. -EINVAL, -E2BIG: message says which rule and why. */
typedef void (*PolicyLoadDone)(int error, const char *message, LoadedPolicy *p, void *userdata);
/* At once when it is loaded already: then done has been called when this returns. */
int host_network_load_policy(HostNetwork *n, const SandboxPolicy *rules, PolicyLoadDone done, void *userdata);
int loaded_policy_load(LoadedPolicy *p, PolicyLoadDone done, void *userdata);
/* The one with these rules, a new reference; whether or not it is, or can be, loaded. */
int host_network_get_policy(HostNetwork *n, const SandboxPolicy *rules, LoadedPolicy **ret);
/* Borrows. */
NetRules sandbox_policy_net_rules(const SandboxPolicy *p);
/* Those that are always there. */
LoadedPolicy *host_network_deny_policy(HostNetwork *n);
LoadedPolicy *host_network_internet_policy(HostNetwork *n);
