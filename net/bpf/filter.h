/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* On the host's end of the veth, where neither guest nor VMM reaches: who may talk to whom.
 *
 * from_sandbox sits on ingress, to_sandbox on egress. What is not known drops the packet: a sandbox without an
 * entry, a policy without a table, a protocol without a parser. What passes gets what our nftables
 * chains ask for. */

#include "judge.h"
#include "offload.h"
#include "reset.h"

#define AF_INET 2
#define AF_INET6 10

typedef struct Sandbox {
        const NetConfig *config;
        const NetSlot *slot;
        const NetEntry *entry;
        const NetLimits *limits;
        NetUsage *usage;
        __u64 now;
        __u32 number;
} Sandbox;

static __always_inline int sandbox_find(__u32 ifindex, Sandbox *s) {
        if (ifindex_slot(ifindex, NET_LINK_HOST, &s->number) < 0)
                return -1;
        s->config = config_get();
        s->slot = bpf_map_lookup_elem(&slots, &s->number);
        s->entry = bpf_map_lookup_elem(&sandboxes, &s->number);
        s->usage = bpf_map_lookup_elem(&usage, &s->number);
        /* To a tick: of what is measured here nothing is finer, and reading the clock costs more than a lookup. */
        s->now = bpf_ktime_get_coarse_ns();
        if (!s->config || !s->slot || !s->entry || !s->usage)
                return -1;
        s->limits = limits_get(s->number, s->config);
        return 0;
}

static __always_inline int is_query(const Sandbox *s, const Packet *p, int inbound) {
        return is_resolver_addr(s->config, p->tag, inbound ? &p->src : &p->dst) &&
               (inbound ? p->sport : p->dport) == bpf_htons(s->config->resolver_port) &&
               (p->proto == IPPROTO_UDP || p->proto == IPPROTO_TCP) && p->fragment == FRAGMENT_NONE;
}

static __always_inline void fill_audit(NetAuditKey *key, const Sandbox *s, const Packet *p, int inbound, __u32 reason) {
        key->slot = s->number;
        key->tag = p->tag;
        key->proto = p->proto;
        key->reason = reason;
        key->inbound = inbound;
        key->remote = inbound ? p->src : p->dst;
        /* Whoever connects from outside has a new port each time: told is the one that he wanted. That of the resolver
         * the kernel chose, the guest has asked at another. */
        key->remote_port = !inbound && is_query(s, p, 0) ? bpf_htons(DNS_PORT) : p->dport;
}

static __always_inline int drop(struct __sk_buff *skb, Sandbox *s, const Packet *p, int inbound, __u32 reason) {
        count(inbound ? &s->usage->stats.in_denied : &s->usage->stats.out_denied, skb);
        if (reason < _NET_REASON_MAX)
                __sync_fetch_and_add(&s->usage->stats.denied[reason], 1);
        if (reason != NET_DENIED_RATE && reason != NET_DENIED_FRAGMENT && reason != NET_DENIED_UNRELATED) {
                NetAuditKey key = {};
                fill_audit(&key, s, p, inbound, reason);
                audit_denied(&key);
        }
        return TC_ACT_SHOT;
}

/* To the host's stack, with the mark, and with a last hop to live that our nftables chain alone makes more of: where
 * that chain is gone, and with it masquerading, nothing is forwarded. */
static __always_inline int hand_over(struct __sk_buff *skb, const Sandbox *s, const Packet *p) {
        __u8 last = 1;

        skb->mark = s->config->mark;
        if (p->tag == NET_TAG6)
                return bpf_skb_store_bytes(skb, ETH_HLEN + 7, &last, 1, 0) ? TC_ACT_SHOT : TC_ACT_OK;
        struct {
                __u8 ttl, proto;
                __u16 check;
        } h;
        if (bpf_skb_load_bytes(skb, ETH_HLEN + 8, &h, sizeof(h)))
                return TC_ACT_SHOT;
        /* In one store with its checksum: old sum - old word + new word, in ones' complement. */
        h.check = ~fold((__u16) ~h.check + (__u16) ~bpf_htons(h.ttl << 8) + bpf_htons(last << 8));
        h.ttl = last;
        return bpf_skb_store_bytes(skb, ETH_HLEN + 8, &h, sizeof(h), 0) ? TC_ACT_SHOT : TC_ACT_OK;
}

static __always_inline int pass(struct __sk_buff *skb, Sandbox *s, const Packet *p, int inbound) {
        if (limits_take(skb, s->usage, s->limits, inbound, s->now) < 0) {
                count(inbound ? &s->usage->stats.in_denied : &s->usage->stats.out_denied, skb);
                __sync_fetch_and_add(&s->usage->stats.denied[NET_DENIED_RATE], 1);
                return TC_ACT_SHOT;
        }
        count(inbound ? &s->usage->stats.in : &s->usage->stats.out, skb);
        return inbound ? TC_ACT_OK : hand_over(skb, s, p);
}

/* Denied, and whoever waits for an answer is told. f: NULL when it is of no flow that ever was allowed. */
static __always_inline int refuse(struct __sk_buff *skb, Sandbox *s, const Packet *p, NetFlow *f, int inbound, __u32 reason) {
        drop(skb, s, p, inbound, reason);
        if (p->proto != IPPROTO_TCP) {
                if (!inbound)
                        refuse_other(skb, p);
                return TC_ACT_SHOT;
        }
        /* To the world there is no sandbox here. */
        if (inbound && reason == NET_DENIED_INBOUND)
                return TC_ACT_SHOT;
        int r = reset_tcp(skb, p, inbound);
        /* The guest hears of it, too; but not in its sleep. */
        if (inbound)
                return s->entry->flags & NET_ENTRY_PARKED ? TC_ACT_SHOT : r;
        if (r != TC_ACT_OK)
                return r;
        /* The numbers in a reset are the guest's, and would carry data: so there is one, and to whom it had a connection. */
        if (!f || f->flags & NET_FLOW_RST)
                return TC_ACT_SHOT;
        __sync_fetch_and_or(&f->flags, NET_FLOW_RST);
        return hand_over(skb, s, p);
}

static __always_inline void fill_question(Question *q, const Sandbox *s, const Packet *p, int inbound, int flow_inbound) {
        q->slot = s->number;
        q->tag = p->tag;
        q->proto = p->proto;
        q->inbound = flow_inbound;
        q->remote = inbound ? p->src : p->dst;
        q->port = inbound == flow_inbound ? p->dport : p->sport;
}

/* A known flow: 0, or the reason why it must end. */
static __always_inline int flow_check(Sandbox *s, const Packet *p, NetFlow *f, int inbound) {
        __u32 generation = s->entry->generation;

        /* Of the guest before the pause; and one that was resumed may answer those who did that before it is opened. */
        if (f->generation != generation && f->flags & NET_FLOW_HOST && s->entry->flags & NET_ENTRY_PARKED)
                return NET_DENIED_OWNER;
        if (f->generation != generation && !(f->flags & NET_FLOW_HOST)) {
                Question q = { .again = 1 };

                fill_question(&q, s, p, inbound, !!(f->flags & NET_FLOW_INBOUND));
                flow_judged(f, generation, judge(s->entry, &q));
        }
        if (f->flags & NET_FLOW_DENIED)
                return NET_DENIED_POLICY;
        flow_note_use(s->usage, f, p, inbound, s->now);
        flow_touch(f, p, inbound, s->now);
        return NET_ALLOWED;
}

/* Is there a way out for it, and one that does not end on this host? */
static __always_inline int has_route(struct __sk_buff *skb, const Packet *p) {
        struct bpf_fib_lookup fib = { .ifindex = skb->ifindex, .l4_protocol = p->proto };

        if (p->tag == NET_TAG4) {
                fib.family = AF_INET;
                fib.ipv4_src = p->src.w[0];
                fib.ipv4_dst = p->dst.w[0];
        } else {
                fib.family = AF_INET6;
                __builtin_memcpy(fib.ipv6_src, &p->src, 16);
                __builtin_memcpy(fib.ipv6_dst, &p->dst, 16);
        }
        long r = bpf_fib_lookup(skb, &fib, sizeof(fib), 0);
        return r == BPF_FIB_LKUP_RET_SUCCESS || r == BPF_FIB_LKUP_RET_NO_NEIGH;
}

/* An ICMP error may pass if it is about a flow that may. */
static __always_inline int error_related(struct __sk_buff *skb, Sandbox *s, const Packet *p, int inbound) {
        Packet quoted = {};
        NetFlowKey key = {};

        if (packet_parse_quoted(skb, p, &quoted) < 0)
                return 0;
        /* The sandbox complains of what came to it, and hears of what it sent. */
        if (!inbound && !addr_equal(&quoted.src, &p->dst))
                return 0;
        if (inbound && !addr_equal(&quoted.src, p->tag == NET_TAG4 ? &s->slot->addr4 : &s->slot->addr6))
                return 0;
        flow_key(&key, s->number, &quoted, !inbound);
        const NetFlow *f = bpf_map_lookup_elem(&flows, &key);
        return f && !(f->flags & NET_FLOW_DENIED);
}

static __always_inline int later_fragment(struct __sk_buff *skb, Sandbox *s, const Packet *p, int inbound) {
        const NetFragment *first = fragment_find(s->number, p, inbound, s->now);

        /* One that is parked is woken by first ones alone, which bring the rest along. */
        if (!first || (s->entry->flags & NET_ENTRY_PARKED && first->generation != s->entry->generation))
                return drop(skb, s, p, inbound, NET_DENIED_FRAGMENT);
        return pass(skb, s, p, inbound);
}

static __always_inline int judge_new(struct __sk_buff *skb, Sandbox *s, const Packet *p, int inbound) {
        Question q = {};

        fill_question(&q, s, p, inbound, inbound);
        int r = judge(s->entry, &q);
        if (r == JUDGED_HOST)
                return NET_ALLOWED;
        return r == NET_ALLOWED && !inbound && !has_route(skb, p) ? NET_DENIED_HOST : r;
}

/* Queries come from a new port each time: to keep them as flows would take up all that a sandbox may have. Nothing is
 * remembered of them but their rate. */
static __always_inline int judge_query(const Sandbox *s, int inbound) {
        if (!(s->entry->flags & NET_ENTRY_DNS))
                return NET_DENIED_POLICY;
        if (inbound)
                return NET_ALLOWED;
        bpf_spin_lock(&s->usage->lock);
        int r = bucket_take(&s->usage->queries, 1, NET_QUERY_PACKETS_MAX, NET_QUERY_PACKETS_MAX, s->now);
        bpf_spin_unlock(&s->usage->lock);
        return r < 0 ? NET_DENIED_RATE : NET_ALLOWED;
}

SEC("tc")
int from_sandbox(struct __sk_buff *skb) {
        Sandbox s = {};
        Packet p = {};
        NetFlowKey key = {};
        struct ethhdr eth;
        int r;

        if (sandbox_find(skb->ifindex, &s) < 0)
                return TC_ACT_SHOT;
        /* Made by to_sandbox for the other end of a connection; nothing that the guest sends has a mark. */
        int made_here = skb->mark == NET_MARK_RESET;
        skb->mark = 0;
        r = packet_parse(skb, &p);
        if (made_here)
                return r < 0 ? TC_ACT_SHOT : hand_over(skb, &s, &p);
        if (r < 0 || skb->vlan_present || !checksum_place_valid(skb, &p))
                return drop(skb, &s, &p, 0, NET_DENIED_MALFORMED);
        if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) || !mac_equal(eth.h_source, s.slot->mac_peer) ||
            !mac_equal(eth.h_dest, s.slot->mac_host) ||
            !addr_equal(&p.src, p.tag == NET_TAG4 ? &s.slot->addr4 : &s.slot->addr6))
                return drop(skb, &s, &p, 0, NET_DENIED_SPOOFED);

        if (p.fragment == FRAGMENT_LATER)
                return later_fragment(skb, &s, &p, 0);
        if (p.error)
                return error_related(skb, &s, &p, 0) ? pass(skb, &s, &p, 0) : drop(skb, &s, &p, 0, NET_DENIED_UNRELATED);

        flow_key(&key, s.number, &p, 0);
        NetFlow *f = bpf_map_lookup_elem(&flows, &key);
        if (is_query(&s, &p, 0))
                r = judge_query(&s, 0);
        else if (f)
                r = flow_check(&s, &p, f, 0);
        else {
                r = judge_new(skb, &s, &p, 0);
                if (r == NET_ALLOWED)
                        r = flow_add(&key, s.usage, s.limits, s.entry->generation, 0, s.now);
        }
        if (r == NET_DENIED_RATE)
                return drop(skb, &s, &p, 0, r);
        if (r != NET_ALLOWED)
                return refuse(skb, &s, &p, f, 0, r);
        if (p.fragment == FRAGMENT_FIRST)
                fragment_remember(s.number, &p, 0, s.entry->generation, s.now);
        return pass(skb, &s, &p, 0);
}

/* Not now: dropped without an answer, that it is tried again. */
#define JUDGED_LATER (-2)

/* Only the first packet of a TCP connection does; of other protocols nobody can tell. */
static __always_inline int begins(const Packet *p) {
        return p->proto != IPPROTO_TCP || (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

static __always_inline int host_process_may(struct __sk_buff *skb, const Sandbox *s) {
        __u32 uid = bpf_get_socket_uid(skb);

        if (uid == 0 || uid == s->entry->owner)
                return 1;
        for (__u32 i = 0; i < sizeof(s->config->ingress_uids) / sizeof(__u32); i++)
                if (i < s->config->n_ingress_uids && s->config->ingress_uids[i] == uid)
                        return 1;
        return 0;
}

/* A process of this host connects: root, the sandbox's owner and those that ingress is for may. A paused one is woken by
 * connections and datagrams only. */
static __always_inline int judge_host_process(struct __sk_buff *skb, const Sandbox *s, const Packet *p) {
        __u32 flags = s->entry->flags & (NET_ENTRY_CLOSED | NET_ENTRY_PARKED);

        if (flags == NET_ENTRY_CLOSED || !host_process_may(skb, s))
                return NET_DENIED_OWNER;
        if (!(flags & NET_ENTRY_PARKED))
                return NET_ALLOWED;
        if (!begins(p) || (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP))
                return NET_DENIED_OWNER;
        return flags & NET_ENTRY_CLOSED ? JUDGED_LATER : NET_ALLOWED;
}

/* f: NULL when it is new, or one of the host's processes. Port numbers are used again, so who sends is looked at each time
 * that something may begin. */
static __always_inline int from_host_process(struct __sk_buff *skb, Sandbox *s, const Packet *p, const NetFlowKey *key, NetFlow *f) {
        __u32 generation = s->entry->generation;

        if (!f || begins(p)) {
                int r = judge_host_process(skb, s, p);
                if (r != NET_ALLOWED)
                        return r;
        }
        /* It asks again, and the first one waits in the tap still: a guest that gets both may answer them differently. */
        if (f && f->generation == generation && p->proto == IPPROTO_TCP && begins(p) && s->entry->flags & NET_ENTRY_PARKED)
                return JUDGED_LATER;
        if (!f)
                return flow_add(key, s->usage, s->limits, generation, NET_FLOW_INBOUND | NET_FLOW_HOST, s->now);
        if (begins(p))
                f->generation = generation;
        return flow_check(s, p, f, 1);
}

SEC("tc")
int to_sandbox(struct __sk_buff *skb) {
        Sandbox s = {};
        Packet p = {};
        NetFlowKey key = {};
        int r;

        if (sandbox_find(skb->ifindex, &s) < 0)
                return TC_ACT_SHOT;
        if (skb->mark == NET_MARK_RESET || skb->mark == NET_MARK_POKE)
                return TC_ACT_OK;
        r = packet_parse(skb, &p);
        /* The host looks for routers and listeners on any of its links. */
        if (p.tag == NET_TAG6 && (__u8) p.dst.w[0] == 0xff)
                return TC_ACT_SHOT;
        if (r < 0)
                return drop(skb, &s, &p, 1, NET_DENIED_MALFORMED);
        if (!addr_equal(&p.dst, p.tag == NET_TAG4 ? &s.slot->addr4 : &s.slot->addr6))
                return drop(skb, &s, &p, 1, NET_DENIED_SPOOFED);

        if (p.fragment == FRAGMENT_LATER)
                return later_fragment(skb, &s, &p, 1);
        if (p.error)
                return error_related(skb, &s, &p, 1) ? pass(skb, &s, &p, 1) : drop(skb, &s, &p, 1, NET_DENIED_UNRELATED);

        flow_key(&key, s.number, &p, 1);
        NetFlow *f = bpf_map_lookup_elem(&flows, &key);
        if (is_query(&s, &p, 1) && skb->ingress_ifindex == 0)
                r = judge_query(&s, 1);
        else if (skb->ingress_ifindex == 0 && (!f || f->flags & NET_FLOW_HOST))
                r = from_host_process(skb, &s, &p, &key, f);
        else if (f)
                r = flow_check(&s, &p, f, 1);
        else {
                r = judge_new(skb, &s, &p, 1);
                if (r == NET_ALLOWED)
                        r = flow_add(&key, s.usage, s.limits, s.entry->generation, NET_FLOW_INBOUND, s.now);
        }
        if (r == JUDGED_LATER)
                return TC_ACT_SHOT;
        if (r != NET_ALLOWED)
                return refuse(skb, &s, &p, f, 1, r);
        if (p.fragment == FRAGMENT_FIRST)
                fragment_remember(s.number, &p, 1, s.entry->generation, s.now);
        return pass(skb, &s, &p, 1);
}
