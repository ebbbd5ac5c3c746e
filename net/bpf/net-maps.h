/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the BPF programs and cube-netd share: keys and values of maps, and the plan of numbers.
 *
 * A sandbox's place in the network is its slot. The slot gives its addresses (network + slot), the
 * interface numbers of its three links, which are chosen by us so that each of them tells the slot in
 * whatever namespace a program runs, and their MACs. All maps are keyed by it.
 *
 * Addresses and ports are in network byte order, everything else in that of the host. */

#include <linux/bpf.h>

#include "net-types.h"

#define NET_FLOWS_MAX (512U * 1024U)
#define NET_POLICIES_MAX 16384U
#define NET_PORT_RANGES_MAX 32U
/* Packets a second of a sandbox to the resolver, far more than that answers: all sandboxes share its queues. */
#define NET_QUERY_PACKETS_MAX 2000U

#define NET_IFINDEX_BASE 0x20000000U
#define NET_IFINDEX_END (NET_IFINDEX_BASE + NET_SLOTS_MAX * 4U)
typedef enum NetLink {
        NET_LINK_HOST, /* veth, in the host's namespace */
        NET_LINK_PEER, /* its other end, in the sandbox's */
        NET_LINK_TAP,
} NetLink;

#define NET_IFINDEX(slot, link) (NET_IFINDEX_BASE + (slot) * 4U + (link))
#define NET_IFINDEX_SLOT(ifindex) (((ifindex) - NET_IFINDEX_BASE) / 4U)
#define NET_IFINDEX_LINK(ifindex) (((ifindex) - NET_IFINDEX_BASE) % 4U)

/* First byte of an address in a key: its family, and for what is asked. */
#define NET_TAG4 4U
#define NET_TAG6 6U
#define NET_KEY_INBOUND 0x80U

typedef struct NetAddr {
        __u32 w[4];            /* IPv4: the first, the others 0 */
} NetAddr;

typedef struct NetConfig {
        __u32 mark;            /* the bit that the second barrier asks for */
        __u32 audit_interval;  /* seconds in which a destination is told once */
        __u32 audit_rate;      /* events a second and sandbox */
        __u32 timeout_tcp, timeout_udp, timeout_closing; /* seconds */
        __u32 n_ingress_uids;
        __u32 ingress_uids[NET_INGRESS_UIDS_MAX]; /* besides root and the owner */
        NetAddr resolver4, resolver6; /* 0: there is none */
        __u32 resolver_port;   /* host byte order; the guest sees 53 */
        __u32 reserved;
        NetLimits limits;      /* where a sandbox has none of its own */
        /* Of cube-netd, kept here for the next one: the link that forwards only because we told it to. */
        char guarded[16];
        __u32 forwards6;       /* the host forwards IPv6 only because we told it to */
        __u32 next_slot;       /* the one that is given out next */
} NetConfig;

typedef struct NetSlot {
        NetAddr addr4, addr6;
        __u8 mac_host[6], mac_peer[6];
        __u32 reserved;
} NetSlot;

typedef struct NetPolicyKey {
        __u32 prefix;          /* bits, those of tag counted */
        __u8 tag;
        __u8 addr[16];
} __attribute__((packed)) NetPolicyKey;

#define NET_RULE_TCP 1U        /* all ports */
#define NET_RULE_TCP_PORTS 2U  /* those in the port set */
#define NET_RULE_UDP 4U
#define NET_RULE_UDP_PORTS 8U
#define NET_RULE_ICMP 16U
#define NET_RULE_OTHER 32U     /* every other protocol */
#define NET_RULE_ALL (NET_RULE_TCP | NET_RULE_UDP | NET_RULE_ICMP | NET_RULE_OTHER)
#define NET_RULE_SPECIAL 64U   /* in a special range: names don't open it */
#define NET_RULE_HOST 128U     /* an address of the host is meant */
#define NET_RULE_NAMES 256U    /* a special range in which a rule "NAME in CIDR" lets names open addresses */

/* What may pass to the addresses of a prefix: the whole verdict, rules of covering prefixes included. */
typedef struct NetRule {
        __u32 flags;
        __u32 set;             /* of ports */
} NetRule;

typedef struct NetPortSetKey {
        __u32 policy, set;
} NetPortSetKey;

typedef struct NetPortRange {
        __u16 first, last;     /* host byte order */
} NetPortRange;

typedef struct NetPortSet {
        __u32 n_tcp, n_udp;
        NetPortRange tcp[NET_PORT_RANGES_MAX], udp[NET_PORT_RANGES_MAX];
} NetPortSet;

/* Names with different rules can have the same address: so many of them. */
#define NET_NAME_RULES 4U
#define NET_NAME_MAX 256U

/* What the answer to a DNS query opened. Of a policy: what was opened under one means nothing under another. */
typedef struct NetNameKey {
        __u32 slot;
        __u32 policy;
        __u8 tag, index;       /* index < NET_NAME_RULES */
        __u16 reserved;
        NetAddr addr;
} NetNameKey;

typedef struct NetName {
        __u64 expires;         /* ns of CLOCK_MONOTONIC */
        __u64 used;            /* when a flow that it may have opened was last seen; of the sweep */
        NetRule rule;          /* NET_RULE_SPECIAL: opens an address in a special range */
        char name[NET_NAME_MAX]; /* the one that was asked for; lower case, ends with NUL */
} NetName;

typedef struct NetFlowKey {
        __u32 slot;
        __u8 tag;
        __u8 proto;
        __u16 local_port;      /* ICMP echo: its id */
        NetAddr remote;
        __u16 remote_port;
        __u16 reserved;
} NetFlowKey;

#define NET_FLOW_INBOUND 1U
#define NET_FLOW_DENIED 2U     /* by a policy that came later */
#define NET_FLOW_FIN_OUT 4U
#define NET_FLOW_FIN_IN 8U
#define NET_FLOW_RST 16U
#define NET_FLOW_REPLIED 32U
#define NET_FLOW_HOST 64U       /* begun by a process of the host, judged by its owner */

typedef struct NetFlow {
        __u64 seen;            /* ns of CLOCK_MONOTONIC */
        __u32 generation;
        __u32 flags;
} NetFlow;

typedef struct NetFragmentKey {
        __u32 slot;
        __u32 id;
        NetAddr remote;
        __u8 tag, proto, inbound, reserved;
} NetFragmentKey;

typedef struct NetFragment {
        __u64 seen;            /* ns of CLOCK_MONOTONIC */
        __u32 generation;      /* of the entry that let the first one pass */
        __u32 reserved;
} NetFragment;

typedef struct NetBucket {
        __u64 tokens;
        __u64 filled;          /* ns */
} NetBucket;

/* lock is for the buckets; what is counted is added atomically. */
typedef struct NetUsage {
        struct bpf_spin_lock lock;
        __u32 reserved;
        NetBucket bytes_out, bytes_in, packets_out, packets_in, flows_new, queries, audit;
        __u64 use_noted;       /* when stats.used was written; ns of CLOCK_MONOTONIC */
        NetStats stats;
} NetUsage;

typedef struct NetAuditKey {
        __u32 slot;
        __u8 tag, proto, reason, inbound;
        NetAddr remote;
        __u16 remote_port;
        __u16 reserved;
} NetAuditKey;

typedef struct NetAuditEvent {
        NetAuditKey what;
        __u32 count;           /* of denied packets like this since the last event */
} NetAuditEvent;

/* skb->mark of packets that our programs make, on their way through the other one. */
#define NET_MARK_RESET 0x43754252U
/* Of a packet to the guest whose answer tells the numbers that a reset needs. */
#define NET_MARK_POKE 0x43754250U

/* Data of a run of the program `sweep`. */
#define NET_SWEEP_EXPIRE 1U
#define NET_SWEEP_REJUDGE 2U
#define NET_SWEEP_DROP 3U
/* Answers that have run out are kept so long, and as long as there are flows that they may have opened. */
#define NET_NAME_KEPT_SEC 60U
typedef struct NetSweep {
        __u32 what;
        __u32 slot;            /* REJUDGE, DROP */
        __u64 now;
        __u32 removed, denied;
} NetSweep;
