/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Token buckets, counters, and the audit of what was denied. */

#include "packet.h"

#define NSEC_PER_SEC 1000000000ULL
/* A bucket holds this part of a second, but never less than one large packet. */
#define BURST_DIVISOR 8U
#define BURST_BYTES_MIN (256U * 1024U)
#define BURST_PACKETS_MIN 64U

/* Under the lock. Time is in nanoseconds, tokens in what is counted. */
static __always_inline int bucket_take(NetBucket *b, __u64 n, __u64 rate, __u64 burst_min, __u64 now) {
        __u64 burst = rate / BURST_DIVISOR;
        if (burst < burst_min)
                burst = burst_min;

        /* The clock was read before the lock was taken: another CPU may have read it later and been first. */
        __u64 passed = now > b->filled ? now - b->filled : 0;
        if (b->filled == 0 || passed > NSEC_PER_SEC) {
                b->tokens = burst;
                b->filled = now;
        } else {
                /* In microseconds, that 2^63 is not passed; what is less stays for the next time. */
                __u64 usec = passed / 1000, more = rate * usec / 1000000;
                if (more > 0) {
                        b->tokens += more;
                        b->filled = now;
                }
                if (b->tokens > burst)
                        b->tokens = burst;
        }
        if (b->tokens < n)
                return -1;
        b->tokens -= n;
        return 0;
}

static __always_inline const NetLimits *limits_get(__u32 slot, const NetConfig *c) {
        const NetLimits *l = bpf_map_lookup_elem(&limits, &slot);
        return l ?: &c->limits;
}

/* That leave the host for this one. A VMM says only how large they are to be. */
static __always_inline __u64 segments(struct __sk_buff *skb) {
        __u32 size = skb->gso_size;
        return size > 0 ? (skb->len + size - 1) / size : 1;
}

static __always_inline int limits_take(struct __sk_buff *skb, NetUsage *u, const NetLimits *l, int inbound, __u64 now) {
        __u64 byte_rate = inbound ? l->bytes_in : l->bytes_out;
        __u64 packet_rate = inbound ? l->packets_in : l->packets_out;
        int r = 0;

        if (byte_rate == 0 && packet_rate == 0)
                return 0;
        __u64 packets = segments(skb);
        bpf_spin_lock(&u->lock);
        if (packet_rate > 0)
                r = bucket_take(inbound ? &u->packets_in : &u->packets_out, packets, packet_rate, BURST_PACKETS_MIN, now);
        if (r == 0 && byte_rate > 0)
                r = bucket_take(inbound ? &u->bytes_in : &u->bytes_out, skb->len, byte_rate, BURST_BYTES_MIN, now);
        bpf_spin_unlock(&u->lock);
        return r;
}

static __always_inline void count(NetCount *c, struct __sk_buff *skb) {
        __sync_fetch_and_add(&c->packets, segments(skb));
        __sync_fetch_and_add(&c->bytes, skb->len);
}

/* Tells of a denied packet, once an interval for each destination and reason, and so many events a
 * second at most: a guest must not be able to fill the journal. */
FUNCTION int audit_denied(const NetAuditKey *what) {
        const NetConfig *c = config_get();
        AuditSeen fresh = {}, *seen;
        NetAuditEvent *event;
        NetAuditKey key;
        NetUsage *u;
        __u32 slot;
        int r;

        if (!what || !c)
                return 0;
        /* On the stack: to kernel 6.1 what an argument points to is no key. */
        key = *what;
        slot = key.slot;
        u = bpf_map_lookup_elem(&usage, &slot);
        if (!u)
                return 0;
        __u64 now = bpf_ktime_get_ns();
        seen = bpf_map_lookup_elem(&audit_seen, &key);
        if (seen && seen->told != 0 && now - seen->told < c->audit_interval * NSEC_PER_SEC) {
                __sync_fetch_and_add(&seen->count, 1);
                return 0;
        }

        bpf_spin_lock(&u->lock);
        r = bucket_take(&u->audit, 1, c->audit_rate, c->audit_rate, now);
        bpf_spin_unlock(&u->lock);
        event = r == 0 ? bpf_ringbuf_reserve(&audit, sizeof(*event), 0) : NULL;
        if (!event) {
                __sync_fetch_and_add(&u->stats.audit_lost, 1);
                return 0;
        }
        event->what = key;
        event->count = 1 + (seen ? seen->count : 0);
        bpf_ringbuf_submit(event, 0);

        fresh.told = now;
        bpf_map_update_elem(&audit_seen, &key, &fresh, BPF_ANY);
        return 0;
}
