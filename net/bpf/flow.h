/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* State of flows: what lets answers in, what is judged once and not for each packet, and what is
 * judged again when the policy changes. One table for all, so each sandbox has a limit of its own. */

#include "limits.h"

#define FLOW_TOUCH_NSEC NSEC_PER_SEC
#define FRAGMENT_NSEC (30 * NSEC_PER_SEC)

/* The flow of a packet from (or to) the sandbox. *key zeroed. */
static __always_inline void flow_key(NetFlowKey *key, __u32 slot, const Packet *p, int inbound) {
        key->slot = slot;
        key->tag = p->tag;
        key->proto = p->proto;
        key->remote = inbound ? p->src : p->dst;
        key->remote_port = inbound ? p->sport : p->dport;
        key->local_port = inbound ? p->dport : p->sport;
}

/* Of use to somebody outside: the answer to either, and what comes in after it. What the guest says without being answered
 * is not, nor what comes and has no answer, a connection that is refused, or a ping. Called before flow_touch(). */
static __always_inline void flow_note_use(NetUsage *u, const NetFlow *f, const Packet *p, int inbound, __u64 now) {
        int answers = !!(f->flags & NET_FLOW_INBOUND) != inbound;

        if (p->proto == IPPROTO_TCP ? p->tcp_flags & TCP_RST || (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN :
            p->proto != IPPROTO_UDP)
                return;
        if (f->flags & NET_FLOW_REPLIED ? !inbound : !answers)
                return;
        if (u->use_noted != 0 && now - u->use_noted < FLOW_TOUCH_NSEC)
                return;
        u->use_noted = now;
        u->stats.used = bpf_ktime_get_boot_ns();
}

static __always_inline void flow_touch(NetFlow *f, const Packet *p, int inbound, __u64 now) {
        __u32 flags = 0;

        if (now - f->seen > FLOW_TOUCH_NSEC)
                f->seen = now;
        if (!!(f->flags & NET_FLOW_INBOUND) != inbound)
                flags |= NET_FLOW_REPLIED;
        if (p->tcp_flags & TCP_FIN)
                flags |= inbound ? NET_FLOW_FIN_IN : NET_FLOW_FIN_OUT;
        if (p->tcp_flags & TCP_RST)
                flags |= NET_FLOW_RST;
        /* Port numbers are used again. */
        if ((p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN &&
            (f->flags & (NET_FLOW_RST | NET_FLOW_FIN_IN | NET_FLOW_FIN_OUT)))
                __sync_fetch_and_and(&f->flags, ~(NET_FLOW_RST | NET_FLOW_FIN_IN | NET_FLOW_FIN_OUT | NET_FLOW_REPLIED));
        else if ((f->flags & flags) != flags)
                __sync_fetch_and_or(&f->flags, flags);
}

/* r: what judge() said of it. */
static __always_inline void flow_judged(NetFlow *f, __u32 generation, int r) {
        if (r <= NET_ALLOWED)
                __sync_fetch_and_and(&f->flags, ~NET_FLOW_DENIED);
        else
                __sync_fetch_and_or(&f->flags, NET_FLOW_DENIED);
        f->generation = generation;
}

/* 0, or the reason why there can't be one more. */
static __always_inline int flow_add(const NetFlowKey *key, NetUsage *u, const NetLimits *l, __u32 generation,
                                    __u32 flags, __u64 now) {
        NetFlow f = { .seen = now, .generation = generation, .flags = flags };

        if (l->flows_open > 0 && u->stats.flows_open >= l->flows_open)
                return NET_DENIED_FLOWS;
        if (l->flows_new > 0) {
                bpf_spin_lock(&u->lock);
                int r = bucket_take(&u->flows_new, 1, l->flows_new, l->flows_new, now);
                bpf_spin_unlock(&u->lock);
                if (r < 0)
                        return NET_DENIED_FLOWS;
        }
        if (bpf_map_update_elem(&flows, key, &f, BPF_NOEXIST))
                /* Another CPU was first, or the table is full. */
                return bpf_map_lookup_elem(&flows, key) ? NET_ALLOWED : NET_DENIED_FLOWS;
        __sync_fetch_and_add(&u->stats.flows_open, 1);
        return NET_ALLOWED;
}

static __always_inline void fragment_key(NetFragmentKey *key, __u32 slot, const Packet *p, int inbound) {
        key->slot = slot;
        key->id = p->id;
        key->remote = inbound ? p->src : p->dst;
        key->tag = p->tag;
        key->proto = p->proto;
        key->inbound = inbound;
}

static __always_inline void fragment_remember(__u32 slot, const Packet *p, int inbound, __u32 generation, __u64 now) {
        NetFragment f = { .seen = now, .generation = generation };
        NetFragmentKey key = {};

        fragment_key(&key, slot, p, inbound);
        bpf_map_update_elem(&fragments, &key, &f, BPF_ANY);
}

/* NULL: it is not known that the first one passed. */
static __always_inline const NetFragment *fragment_find(__u32 slot, const Packet *p, int inbound, __u64 now) {
        NetFragmentKey key = {};

        fragment_key(&key, slot, p, inbound);
        const NetFragment *f = bpf_map_lookup_elem(&fragments, &key);
        return f && now - f->seen < FRAGMENT_NSEC ? f : NULL;
}
