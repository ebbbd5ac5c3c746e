/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cubed's side of cube-netd: asks, and is called back on the loop.
 *
 * Owned by the Manager, which starts and restarts the process behind it (daemon/helper.h) and
 * hands over the socket with net_client_attach(). Requests without a connection fail with
 * -ENOTCONN, those under way when it breaks with -ECONNRESET.
 *
 * All need net_client_setup() first, on each new connection. */

#include <systemd/sd-event.h>

#include "base/macros.h"
#include "base/packet-client.h"
#include "net/bpf/net-types.h"

typedef struct NetClient NetClient;

int net_client_new(sd_event *event, NetClient **ret);
NetClient *net_client_free(NetClient *c);
DEFINE_CLEANUP(NetClient *, net_client_free);
/* Takes fd on success. What was connected before is dropped. */
int net_client_attach(NetClient *c, int fd);
void net_client_detach(NetClient *c);
bool net_client_is_connected(const NetClient *c);

/* Forgets the requests with this userdata: their callbacks won't run. */
void net_client_cancel(NetClient *c, void *userdata);

typedef struct NetSetup {
        const char *net4;      /* CIDR or "auto" */
        const char *net6;      /* NULL: no IPv6 */
        const char *resolver4, *resolver6; /* of one that is not ours, on port 53; NULL: cube-resolver */
        uint32_t mark;         /* one bit */
        uint32_t audit_sec;
        const uint32_t *ingress_uids;
        size_t n_ingress_uids; /* NET_INGRESS_UIDS_MAX at most */
        NetLimits limits;      /* of a sandbox without its own */
} NetSetup;

/* What a request brings. Strings are "" and numbers 0 where it has none; borrowed. */
typedef struct NetResult {
        const char *message;   /* with an error: for people; never NULL */
        const char *net4, *net6, *uplink, *address4, *address6;
        uint32_t mtu, slot;
        uint32_t policy, flags; /* for a NetEntry */
        const char *chains;    /* that drop what sandboxes send, see net/forward-chains.h */
        bool resolving;        /* cube-resolver is there */
        bool special;          /* the policy opens what only an admin may allow */
        uint32_t count;
        NetStats stats;
        int *fds;              /* of a slot: namespace, tap. Take by TAKE_FD */
        size_t n_fds;
} NetResult;

/* error: 0 or negative errno. */
typedef void (*NetDone)(int error, const NetResult *result, void *userdata);

int net_client_setup(NetClient *c, const NetSetup *setup, NetDone done, void *userdata);
/* slot 0: any. Nothing may pass until net_client_claim(). */
int net_client_new_slot(NetClient *c, uint32_t slot, NetDone done, void *userdata);
/* Kept slots are given to nobody else while they have no links: those of paused sandboxes, after each setup. */
int net_client_keep_slot(NetClient *c, uint32_t slot, bool keep, NetDone done, void *userdata);
/* Nobody reaches it any more, and the host's connections to it have ended: before kill, pause, rollback reply. Its links
 * may be gone already. */
int net_client_quiesce(NetClient *c, uint32_t slot, NetDone done, void *userdata);
/* The same, for one that is to be parked: what its owner begins before that gets no answer, and is tried again. */
int net_client_park(NetClient *c, uint32_t slot, NetDone done, void *userdata);

typedef struct NetRules {
        bool internet;         /* the default; else deny */
        const char *const *allow, *const *deny, *const *inbound; /* NULL-terminated or NULL; see net/policy.h */
} NetRules;

/* Loads a policy that claims will name, until it is dropped: as often as it was loaded, for two may come to the same. */
int net_client_load_policy(NetClient *c, const NetRules *rules, NetDone done, void *userdata);
int net_client_drop_policy(NetClient *c, uint32_t policy, NetDone done, void *userdata);
/* Of a running sandbox; in force, and other flows cut, when done is called. */
int net_client_set_policy(NetClient *c, uint32_t slot, const NetRules *rules, NetDone done, void *userdata);
/* NULL: those of the setup */
int net_client_set_limits(NetClient *c, uint32_t slot, const NetLimits *limits, NetDone done, void *userdata);
int net_client_get_statistics(NetClient *c, uint32_t slot, NetDone done, void *userdata);
/* What is in the way of sandboxes on this host, such as somebody's firewall. */
int net_client_check(NetClient *c, NetDone done, void *userdata);

/* At once and without cube-netd: one write to a plain map. -ENOTCONN before the first setup is done. */
int net_client_claim(NetClient *c, uint32_t slot, const NetEntry *entry);
/* What is there: the same, one read. -ENOENT: the slot has no links. */
int net_client_get_entry(const NetClient *c, uint32_t slot, NetEntry *ret);
/* Closes descriptors of a slot that nobody wants any more, by cube-netd: the kernel takes its time for the last of them. */
void net_client_close_slot(NetClient *c, int netns_fd, int tap_fd);

typedef enum NetEventKind {
        NET_DENIED,            /* slot, reason, protocol, address, port, count, inbound; name where known */
        NET_UPLINK_CHANGED,    /* uplink, mtu */
        NET_TABLE_RESTORED,
        /* slot, reason, name, count. Reason "name": it may not be asked for; "answer": it led to address,
         * which it may not open. name "": of more names than are told one by one. */
        NET_NAME_DENIED,
        NET_LINKS_GONE,        /* slot; 0: of some slots */
} NetEventKind;

typedef struct NetEventInfo {
        NetEventKind kind;
        uint32_t slot, protocol, port, count, mtu;
        bool inbound;
        const char *reason, *address, *uplink, *name; /* name: lower case, no trailing dot; guest's choice */
} NetEventInfo;

typedef void (*NetEventHandler)(const NetEventInfo *event, void *userdata);
void net_client_on_event(NetClient *c, NetEventHandler handler, void *userdata);
