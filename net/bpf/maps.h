/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The maps of both programs; cube-netd pins them by name, so that a restart finds them. */

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "net-maps.h"

/* The verifier looks at such a function once, not anew for each way that leads to it. */
#define FUNCTION __attribute__((noinline))

#define MAP_HASH(name_, key_, value_, entries)                  \
        struct {                                                \
                __uint(type, BPF_MAP_TYPE_HASH);                \
                __uint(map_flags, BPF_F_NO_PREALLOC);           \
                __uint(max_entries, entries);                   \
                __type(key, key_);                              \
                __type(value, value_);                          \
                __uint(pinning, LIBBPF_PIN_BY_NAME);            \
        } name_ SEC(".maps")

typedef struct AuditSeen {
        __u64 told;            /* ns */
        __u32 count;
        __u32 reserved;
} AuditSeen;

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, NetConfig);
        __uint(pinning, LIBBPF_PIN_BY_NAME);
} config SEC(".maps");

MAP_HASH(slots, __u32, NetSlot, NET_SLOTS_MAX);
MAP_HASH(sandboxes, __u32, NetEntry, NET_SLOTS_MAX);
MAP_HASH(limits, __u32, NetLimits, NET_SLOTS_MAX);
MAP_HASH(usage, __u32, NetUsage, NET_SLOTS_MAX);
MAP_HASH(port_sets, NetPortSetKey, NetPortSet, NET_SLOTS_MAX);
MAP_HASH(names, NetNameKey, NetName, NET_FLOWS_MAX);
MAP_HASH(flows, NetFlowKey, NetFlow, NET_FLOWS_MAX);

/* A neighbour can push these two's elements out: a fragment is lost then, or an event told again. */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 8192);
        __type(key, NetFragmentKey);
        __type(value, NetFragment);
        __uint(pinning, LIBBPF_PIN_BY_NAME);
} fragments SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 16384);
        __type(key, NetAuditKey);
        __type(value, AuditSeen);
        __uint(pinning, LIBBPF_PIN_BY_NAME);
} audit_seen SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 256 * 1024);
        __uint(pinning, LIBBPF_PIN_BY_NAME);
} audit SEC(".maps");

/* Sizes instead of types inside, and values last: clang 14 loses the type otherwise. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, NET_POLICIES_MAX);
        __uint(key_size, sizeof(__u32));
        __uint(value_size, sizeof(__u32));
        __uint(pinning, LIBBPF_PIN_BY_NAME);
        __array(values, struct {
                __uint(type, BPF_MAP_TYPE_LPM_TRIE);
                __uint(map_flags, BPF_F_NO_PREALLOC);
                __uint(max_entries, 1);
                __uint(key_size, sizeof(NetPolicyKey));
                __uint(value_size, sizeof(NetRule));
        });
} policies SEC(".maps");

static __always_inline const NetConfig *config_get(void) {
        __u32 zero = 0;
        return bpf_map_lookup_elem(&config, &zero);
}

static __always_inline int ifindex_slot(__u32 ifindex, NetLink link, __u32 *ret) {
        if (ifindex < NET_IFINDEX_BASE || ifindex >= NET_IFINDEX_END || NET_IFINDEX_LINK(ifindex) != link)
                return -1;
        *ret = NET_IFINDEX_SLOT(ifindex);
        return 0;
}

static __always_inline int addr_equal(const NetAddr *a, const NetAddr *b) {
        return a->w[0] == b->w[0] && a->w[1] == b->w[1] && a->w[2] == b->w[2] && a->w[3] == b->w[3];
}

static __always_inline int is_resolver_addr(const NetConfig *c, __u8 tag, const NetAddr *a) {
        return a->w[0] != 0 && addr_equal(a, tag == NET_TAG4 ? &c->resolver4 : &c->resolver6);
}

static __always_inline int mac_equal(const __u8 *a, const __u8 *b) {
        const __u16 *x = (const __u16 *) a, *y = (const __u16 *) b;

        return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

static __always_inline __u16 fold(__u32 sum) {
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        return sum;
}

/* What every guest has, or sees as its gateway. */
static __always_inline void inner_addr(__u8 tag, int gateway, NetAddr *ret) {
        __u8 last = gateway ? NET_INNER_GATEWAY : NET_INNER_GUEST;
        const __u8 inner4[4] = NET_INNER4(last), inner6[16] = NET_INNER6(last);

        *ret = (NetAddr) {};
        if (tag == NET_TAG4)
                __builtin_memcpy(ret, inner4, 4);
        else
                __builtin_memcpy(ret, inner6, 16);
}
