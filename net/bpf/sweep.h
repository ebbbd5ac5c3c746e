/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Run by cube-netd, on no packet of anybody's. */

#include "judge.h"

typedef struct SweepContext {
        const NetConfig *config;
        const NetEntry *entry;
        NetSweep *sweep;
} SweepContext;

static __always_inline int flow_expired(const NetFlowKey *key, const NetFlow *f, const NetConfig *c, __u64 now) {
        __u64 age = now > f->seen ? now - f->seen : 0, limit = c->timeout_udp;
        __u32 fin = NET_FLOW_FIN_IN | NET_FLOW_FIN_OUT;

        if (key->proto == IPPROTO_TCP)
                limit = f->flags & (NET_FLOW_RST | NET_FLOW_DENIED) || (f->flags & fin) == fin ? c->timeout_closing :
                        f->flags & NET_FLOW_REPLIED ? c->timeout_tcp : c->timeout_udp;
        else if (f->flags & NET_FLOW_DENIED)
                limit = c->timeout_closing;
        return age > limit * NSEC_PER_SEC;
}

static __always_inline void flow_drop(NetFlowKey *key, NetSweep *sweep) {
        __u32 slot = key->slot;
        NetUsage *u = bpf_map_lookup_elem(&usage, &slot);

        if (bpf_map_delete_elem(&flows, key))
                return;
        if (u)
                __sync_fetch_and_add(&u->stats.flows_open, -1ULL);
        sweep->removed++;
}

static void flow_rejudge(NetFlowKey *key, NetFlow *f, SweepContext *c) {
        Question q = {
                .remote = key->remote,
                .slot = key->slot,
                .tag = key->tag,
                .proto = key->proto,
                .inbound = !!(f->flags & NET_FLOW_INBOUND),
                .again = 1,
        };

        if (!c->entry || f->flags & NET_FLOW_HOST)
                return;
        if (f->generation != c->entry->generation) {
                q.port = q.inbound ? key->local_port : key->remote_port;
                flow_judged(f, c->entry->generation, judge(c->entry, &q));
        }
        if (f->flags & NET_FLOW_DENIED)
                c->sweep->denied++;
}

/* Answers that it may have been opened by are kept as long as it lives. */
static __always_inline void flow_keep_names(const NetFlowKey *flow, const NetFlow *f, __u64 now) {
        __u32 slot = flow->slot;
        const NetEntry *entry = bpf_map_lookup_elem(&sandboxes, &slot);
        NetNameKey key = { .slot = slot, .tag = flow->tag, .addr = flow->remote };

        if (!entry || f->flags & (NET_FLOW_INBOUND | NET_FLOW_DENIED))
                return;
        key.policy = entry->policy;
        for (__u32 i = 0; i < NET_NAME_RULES; i++) {
                key.index = i;
                NetName *n = bpf_map_lookup_elem(&names, &key);
                if (n)
                        n->used = now;
        }
}

static long sweep_name(void *map, NetNameKey *key, NetName *n, SweepContext *c) {
        __u64 kept = NET_NAME_KEPT_SEC * NSEC_PER_SEC, now = c->sweep->now;
        NetNameKey copy;

        if (c->sweep->what == NET_SWEEP_DROP ? key->slot != c->sweep->slot :
            now < kept || (n->expires > now - kept || n->used > now - kept))
                return 0;
        copy = *key;
        bpf_map_delete_elem(&names, &copy);
        return 0;
}

static long sweep_flow(void *map, NetFlowKey *key, NetFlow *f, SweepContext *c) {
        NetSweep *sweep = c->sweep;
        NetFlowKey copy;

        if (!c->config)
                return 1;
        if (sweep->what == NET_SWEEP_REJUDGE) {
                if (key->slot == sweep->slot)
                        flow_rejudge(key, f, c);
                return 0;
        }
        if (sweep->what == NET_SWEEP_DROP ? key->slot == sweep->slot : flow_expired(key, f, c->config, sweep->now)) {
                copy = *key;
                flow_drop(&copy, sweep);
        } else if (sweep->what == NET_SWEEP_EXPIRE)
                flow_keep_names(key, f, sweep->now);
        return 0;
}

/* Goes through all flows, then through what names opened; the packet is a NetSweep, and the answer. */
SEC("tc")
int sweep(struct __sk_buff *skb) {
        NetSweep sweep;
        SweepContext c = { .config = config_get(), .sweep = &sweep };

        if (bpf_skb_load_bytes(skb, ETH_HLEN, &sweep, sizeof(sweep)))
                return TC_ACT_SHOT;
        sweep.now = bpf_ktime_get_ns();
        c.entry = bpf_map_lookup_elem(&sandboxes, &sweep.slot);
        bpf_for_each_map_elem(&flows, sweep_flow, &c, 0);
        if (sweep.what != NET_SWEEP_REJUDGE)
                bpf_for_each_map_elem(&names, sweep_name, &c, 0);
        bpf_skb_store_bytes(skb, ETH_HLEN, &sweep, sizeof(sweep), 0);
        return TC_ACT_OK;
}

/* Sends the packet that it is run on to the link whose number is its mark. */
SEC("tc")
int poke(struct __sk_buff *skb) {
        __u32 ifindex = skb->mark;

        skb->mark = NET_MARK_POKE;
        return bpf_clone_redirect(skb, ifindex, 0) ? TC_ACT_SHOT : TC_ACT_OK;
}
