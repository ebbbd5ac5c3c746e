/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What cubed asks of cube-netd, on a SOCK_SEQPACKET socketpair that cube-netd inherits as fd 3.
 *
 * Packets as in base/packet-client.h. One request at a time is worked on, in order; every request
 * is answered. An error's text is NET_TAG_MESSAGE. Ends with the socket.
 *
 * All but PING need a SETUP before, for each connection; the same one again has the same answer. Events come after it. */

#define NET_PROTO_MAGIC 0x4454454eU /* "NETD" */
#define NET_PROTO_VERSION 4U
#define NET_FD 3

typedef enum NetOp {
        NET_OP_PING = 1,
        NET_OP_SETUP,          /* NET4 NET6 MARK.. -> one fd: the map that a claim writes to; NET4 NET6 MTU UPLINK */
        NET_OP_SLOT_NEW,       /* [SLOT] -> two fds: namespace, tap; SLOT ADDRESS4 [ADDRESS6] MTU. Nothing may pass yet */
        NET_OP_SLOT_KEEP,      /* SLOT: given to nobody else, though it has no links (the sandbox is paused) */
        NET_OP_SLOT_FREE,      /* SLOT: no longer kept; given to somebody else a while after its links are gone */
        NET_OP_POLICY_LOAD,    /* DEFAULT ALLOW.. DENY.. INBOUND.. -> POLICY FLAGS SPECIAL, kept till POLICY_DROP,
                                  as many of them as loads */
        NET_OP_POLICY_DROP,    /* POLICY: goes once nobody has it */
        NET_OP_POLICY_SET,     /* SLOT and a POLICY or those lists -> POLICY FLAGS SPECIAL; in force when answered */
        NET_OP_LIMITS_SET,     /* SLOT [LIMITS] */
        NET_OP_STATISTICS,     /* SLOT -> STATISTICS */
        NET_OP_QUIESCE,        /* SLOT -> COUNT: no new flow, and the host's connections to it are ended: before it stops */
        NET_OP_CHECK,          /* -> CHAINS RESOLVING: what on this host is in a sandbox's way */
        NET_OP_PARK,           /* SLOT -> COUNT: as QUIESCE, before it is paused and waits for the host's connections: those that
                                  begin meanwhile get no answer, and try again */
} NetOp;

typedef enum NetEvent {
        NET_EVENT_DENIED = 100, /* SLOT REASON PROTOCOL ADDRESS PORT COUNT DIRECTION [NAME] */
        NET_EVENT_UPLINK,       /* UPLINK MTU: there is another one; UPLINK "": there is none */
        NET_EVENT_TABLE,        /* somebody changed our nftables table, and it has been put back */
        NET_EVENT_NAME_DENIED,  /* SLOT REASON NAME ADDRESS COUNT: asked of the resolver; NAME "": too many to tell */
        NET_EVENT_LINKS_GONE,   /* SLOT: it has no links any more, whoever took them; 0: of some slots, nobody knows which */
} NetEvent;

typedef enum NetTag {
        NET_TAG_MESSAGE = 1,   /* str */
        NET_TAG_NET4,          /* str: CIDR, or "auto" */
        NET_TAG_NET6,          /* str: CIDR; none: no IPv6 */
        NET_TAG_MARK,          /* u32: one bit */
        NET_TAG_INGRESS_UID,   /* u32, up to 8: may connect to every sandbox */
        NET_TAG_RESOLVER4,     /* str: address of this host, where another resolver is on port 53; none: cube-resolver */
        NET_TAG_RESOLVER6,     /* str */
        NET_TAG_AUDIT_SEC,     /* u32: a destination is told once in so many seconds */
        NET_TAG_LIMITS,        /* NetLimits of net/bpf/net-maps.h */
        NET_TAG_MTU,           /* u32 */
        NET_TAG_UPLINK,        /* str: name of the link */
        NET_TAG_SLOT,          /* u32 */
        NET_TAG_ADDRESS4,      /* str */
        NET_TAG_ADDRESS6,      /* str */
        NET_TAG_POLICY,        /* u32: 1 nothing, 2 internet, or one that was loaded */
        NET_TAG_FLAGS,         /* u32: what the entry of a sandbox with this policy has */
        NET_TAG_SPECIAL,       /* u32: 1 opens what only an admin may allow */
        NET_TAG_DEFAULT,       /* str: deny or internet */
        NET_TAG_ALLOW,         /* str: a rule, see net/policy.h */
        NET_TAG_DENY,          /* str */
        NET_TAG_INBOUND,       /* str */
        NET_TAG_STATISTICS,    /* NetStats of net/bpf/net-maps.h */
        NET_TAG_REASON,        /* str */
        NET_TAG_PROTOCOL,      /* u32 */
        NET_TAG_ADDRESS,       /* str */
        NET_TAG_PORT,          /* u32 */
        NET_TAG_COUNT,         /* u32 */
        NET_TAG_DIRECTION,     /* u32: 1 to the sandbox */
        NET_TAG_NAME,          /* str: lower case, no trailing dot, odd bytes as \DDD */
        NET_TAG_CHAINS,        /* str: as of forward_chains_find() */
        NET_TAG_RESOLVING,     /* u32: 1 cube-resolver is there */
} NetTag;
