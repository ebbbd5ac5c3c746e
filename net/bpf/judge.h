/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The verdict on a flow. Special ranges, allow, deny and default have been folded into one rule a prefix when
 * the policy was compiled; here the longest prefix is looked up, and its rule read. */

#include "flow.h"

typedef struct Question {
        NetAddr remote;
        __u32 slot;
        __u16 port;            /* the sandbox's when inbound, else the remote's; network byte order */
        __u8 tag, proto;
        __u8 inbound;
        __u8 again;            /* of an open flow: an answer that has run out holds for it */
        __u16 reserved;
} Question;

static __always_inline int in_ranges(const NetPortRange *ranges, __u32 n, __u16 port) {
        for (__u32 i = 0; i < NET_PORT_RANGES_MAX; i++) {
                if (i >= n)
                        break;
                if (port >= ranges[i].first && port <= ranges[i].last)
                        return 1;
        }
        return 0;
}

FUNCTION int rule_matches(const NetRule *rule, __u32 policy, __u8 tag, __u8 proto, __u32 port) {
        NetPortSetKey key = { .policy = policy };
        const NetPortSet *set;

        if (!rule)
                return 0;
        if (proto == (tag == NET_TAG4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
                return !!(rule->flags & NET_RULE_ICMP);
        if (proto != IPPROTO_TCP && proto != IPPROTO_UDP)
                return !!(rule->flags & NET_RULE_OTHER);
        if (rule->flags & (proto == IPPROTO_TCP ? NET_RULE_TCP : NET_RULE_UDP))
                return 1;
        if (!(rule->flags & (proto == IPPROTO_TCP ? NET_RULE_TCP_PORTS : NET_RULE_UDP_PORTS)))
                return 0;
        key.set = rule->set;
        set = bpf_map_lookup_elem(&port_sets, &key);
        if (!set)
                return 0;
        return proto == IPPROTO_TCP ? in_ranges(set->tcp, set->n_tcp, port) : in_ranges(set->udp, set->n_udp, port);
}

static __always_inline int name_allows(const Question *q, __u32 policy, int special) {
        NetNameKey key = { .slot = q->slot, .policy = policy, .tag = q->tag, .addr = q->remote };

        for (__u32 i = 0; i < NET_NAME_RULES; i++) {
                key.index = i;
                const NetName *n = bpf_map_lookup_elem(&names, &key);
                if (!n || (special && !(n->rule.flags & NET_RULE_SPECIAL)))
                        continue;
                if (!q->again && n->expires < bpf_ktime_get_ns())
                        continue;
                if (rule_matches(&n->rule, policy, q->tag, q->proto, bpf_ntohs(q->port)))
                        return 1;
        }
        return 0;
}

/* Allowed, and a rule names it as an address of the host. */
#define JUDGED_HOST (-1)

/* 0, JUDGED_HOST, or the reason why not. */
FUNCTION int judge(const NetEntry *entry, const Question *q) {
        NetPolicyKey key = { .prefix = 8 * (1 + 16) };
        __u32 policy;
        void *table;

        if (!entry || !q)
                return NET_DENIED_POLICY;
        policy = entry->policy;
        table = bpf_map_lookup_elem(&policies, &policy);
        if (!table)
                return NET_DENIED_POLICY;

        key.tag = q->tag | (q->inbound ? NET_KEY_INBOUND : 0);
        if (q->tag == NET_TAG4)
                key.prefix = 8 * (1 + 4);
        __builtin_memcpy(key.addr, &q->remote, 16);
        const NetRule *rule = bpf_map_lookup_elem(table, &key);
        if (!rule)
                return NET_DENIED_POLICY;
        if (rule_matches(rule, policy, q->tag, q->proto, bpf_ntohs(q->port)))
                return rule->flags & NET_RULE_HOST ? JUDGED_HOST : NET_ALLOWED;

        int special = !!(rule->flags & NET_RULE_SPECIAL);
        /* Whatever the map of names says: it is not we who write it. */
        int nameable = !special || rule->flags & NET_RULE_NAMES;
        if (!q->inbound && nameable && name_allows(q, policy, special))
                return NET_ALLOWED;
        return q->inbound ? NET_DENIED_INBOUND : special ? NET_DENIED_SPECIAL : NET_DENIED_POLICY;
}
