/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Of what the maps hold, the part that cubed knows too. */

#include <linux/types.h>

#define NET_SLOTS_MAX 65536U
#define NET_INGRESS_UIDS_MAX 8U

/* The same in every guest. */
#define NET_GUEST_MAC { 0x02, 0xcb, 0xff, 0x00, 0x00, 0x02 }
#define NET_GATEWAY_MAC { 0x02, 0xcb, 0xff, 0x00, 0x00, 0x01 }
#define NET_INNER4(n) { 169, 254, 77, (n) }
#define NET_INNER6(n) { 0xfd, 0xcb, 0xed, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, (n) }
#define NET_INNER_GATEWAY 1U
#define NET_INNER_GUEST 2U
#define NET_INNER4_PREFIX 30U
#define NET_INNER6_PREFIX 64U

typedef struct NetLimits {
        __u64 bytes_out, bytes_in;     /* a second; 0 = no limit, here and below */
        __u32 packets_out, packets_in; /* a second */
        __u32 flows_new;               /* a second */
        __u32 flows_open;
} NetLimits;

#define NET_POLICY_DENY 1U     /* nothing passes */
#define NET_POLICY_INTERNET 2U /* all but the special ranges */

#define NET_ENTRY_DNS 1U       /* the resolver may be asked */
#define NET_ENTRY_CLOSED 2U    /* not even root of the host may begin a flow */
/* Paused, and resumed by what this host's processes begin, which waits in the tap. With CLOSED: in a moment, what they
 * begin now is to be tried again. */
#define NET_ENTRY_PARKED 4U

/* What a claim writes: one element of a plain map. */
typedef struct NetEntry {
        __u32 policy;
        __u32 generation;      /* a new one re-judges open flows */
        __u32 flags;
        __u32 owner;           /* uid that may connect from the host */
} NetEntry;

typedef enum NetReason {
        NET_ALLOWED,
        NET_DENIED_POLICY,
        NET_DENIED_SPECIAL,
        NET_DENIED_HOST,       /* the host's own address, or one without a way */
        NET_DENIED_INBOUND,
        NET_DENIED_OWNER,      /* a process of the host that is not the owner's */
        NET_DENIED_SPOOFED,
        NET_DENIED_MALFORMED,
        NET_DENIED_RATE,
        NET_DENIED_FLOWS,      /* too many open, or too many new */
        NET_DENIED_FRAGMENT,   /* nothing is known of its first one */
        NET_DENIED_UNRELATED,  /* ICMP error about no flow of the sandbox */
        _NET_REASON_MAX,
} NetReason;

typedef struct NetCount {
        __u64 packets, bytes;
} NetCount;

typedef struct NetStats {
        NetCount out, in;      /* allowed */
        NetCount out_denied, in_denied;
        __u64 denied[_NET_REASON_MAX];
        __u64 audit_lost;      /* events over the rate */
        __u64 flows_open;
        __u64 used;            /* ns of CLOCK_BOOTTIME: by somebody outside, as filter.h has it, to a second; 0: never */
} NetStats;
