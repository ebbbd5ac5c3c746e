/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside the sandbox's namespace, between tap and veth: the address that every guest has becomes that of
 * this sandbox, and back. Nothing is remembered, so fragments and ICMP errors are translated like the rest.
 *
 * from_guest sits on the tap's ingress, to_guest on that of the veth's inner end. ARP, neighbour
 * discovery and pings of the gateway go on to the namespace's stack, which has the gateway's
 * address on the tap, forwards nothing and listens on nothing. */

#include "limits.h"

#define OFFSET_SRC 0
#define OFFSET_DST 1

static __always_inline int checksum_offset(const Packet *p, __u64 *ret_flags) {
        *ret_flags = BPF_F_PSEUDO_HDR;
        if (p->fragment == FRAGMENT_LATER)
                return -1;
        if (p->proto == IPPROTO_TCP)
                return p->l4 + 16;
        if (p->proto == IPPROTO_UDP) {
                *ret_flags |= BPF_F_MARK_MANGLED_0;
                return p->l4 + 6;
        }
        return -1;
}

/* By hand, since the helpers go by what is left to a device, which in an ICMP error that we made out of another packet
 * is not its checksum. */
static __always_inline int add_icmp_checksum(struct __sk_buff *skb, const Packet *p, __s64 diff) {
        __u16 check;

        if (bpf_skb_load_bytes(skb, p->l4 + 2, &check, sizeof(check)))
                return -1;
        check = ~fold((__u16) ~check + fold(diff));
        return bpf_skb_store_bytes(skb, p->l4 + 2, &check, sizeof(check), 0);
}

static __always_inline int add_icmp6_checksum(struct __sk_buff *skb, const Packet *p, __s64 diff) {
        return p->fragment == FRAGMENT_LATER || p->proto != IPPROTO_ICMPV6 ? 0 : add_icmp_checksum(skb, p, diff);
}

/* which: OFFSET_SRC or OFFSET_DST */
static __always_inline int rewrite4(struct __sk_buff *skb, __u32 ip, int which, __be32 from, __be32 to) {
        if (bpf_l3_csum_replace(skb, ip + 10, from, to, 4))
                return -1;
        return bpf_skb_store_bytes(skb, ip + 12 + 4 * which, &to, 4, 0);
}

FUNCTION int rewrite(struct __sk_buff *skb, const Packet *p, int which, NetAddr *from, NetAddr *to) {
        __u64 flags;
        int check;

        if (!p || !from || !to)
                return -1;
        check = checksum_offset(p, &flags);
        if (p->tag == NET_TAG4) {
                if (check >= 0 && bpf_l4_csum_replace(skb, check, from->w[0], to->w[0], flags | 4))
                        return -1;
                return rewrite4(skb, ETH_HLEN, which, from->w[0], to->w[0]);
        }
        __s64 diff = bpf_csum_diff(from->w, 16, to->w, 16, 0);
        if (check >= 0 ? bpf_l4_csum_replace(skb, check, 0, diff, flags) : add_icmp6_checksum(skb, p, diff))
                return -1;
        return bpf_skb_store_bytes(skb, ETH_HLEN + 8 + 16 * which, to, 16, 0);
}

/* The packet inside an ICMP error. IPv4: its header's checksum makes up for its address, so that the
 * error's own stays; IPv6 has none. Those inside of what is quoted can't be checked by anybody. */
FUNCTION int rewrite_quoted(struct __sk_buff *skb, const Packet *p, int which, NetAddr *from, NetAddr *to) {
        __u32 at;

        if (!p || !from || !to)
                return -1;
        at = p->l4 + 8;
        if (p->tag == NET_TAG4)
                return rewrite4(skb, at, which, from->w[0], to->w[0]);
        __s64 diff = bpf_csum_diff(from->w, 16, to->w, 16, 0);
        if (add_icmp6_checksum(skb, p, diff))
                return -1;
        return bpf_skb_store_bytes(skb, at + 8 + 16 * which, to, 16, 0);
}

static __always_inline int write_macs(struct __sk_buff *skb, const __u8 *dst, const __u8 *src) {
        __u8 macs[12];

        __builtin_memcpy(macs, dst, 6);
        __builtin_memcpy(macs + 6, src, 6);
        return bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0);
}

static __always_inline int is_dns(const Packet *p, __u16 port, __u16 wanted) {
        return port == bpf_htons(wanted) && (p->proto == IPPROTO_UDP || p->proto == IPPROTO_TCP) && p->fragment == FRAGMENT_NONE;
}

/* Neighbour solicitation or advertisement. */
static __always_inline int is_neighbour(struct __sk_buff *skb) {
        struct ipv6hdr ip;
        __u8 type;

        if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || ip.nexthdr != IPPROTO_ICMPV6 || ip.hop_limit != 255)
                return 0;
        return !bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(ip), &type, 1) && (type == 135 || type == 136);
}

static __always_inline int translate_drop(struct __sk_buff *skb, __u32 slot, const Packet *p, __u32 reason) {
        NetUsage *u = bpf_map_lookup_elem(&usage, &slot);
        NetAuditKey key = { .slot = slot, .tag = p->tag, .proto = p->proto, .reason = reason,
                            .remote = p->src };

        if (!u || reason >= _NET_REASON_MAX)
                return TC_ACT_SHOT;
        count(&u->stats.out_denied, skb);
        __sync_fetch_and_add(&u->stats.denied[reason], 1);
        audit_denied(&key);
        return TC_ACT_SHOT;
}

static __always_inline int macs_valid(struct __sk_buff *skb) {
        struct {
                __u16 dst[3], src[3];
        } h;
        const __u8 guest[6] = NET_GUEST_MAC, gateway[6] = NET_GATEWAY_MAC;

        if (bpf_skb_load_bytes(skb, 0, &h, sizeof(h)))
                return 0;
        return mac_equal((const __u8 *) h.dst, gateway) && mac_equal((const __u8 *) h.src, guest);
}

FUNCTION int rewrite_port(struct __sk_buff *skb, const Packet *p, int which, __u32 wanted) {
        __be16 from, to = bpf_htons(wanted);
        __u64 flags;
        int check;

        if (!p)
                return -1;
        from = which == OFFSET_SRC ? p->sport : p->dport;
        check = checksum_offset(p, &flags);
        if (from == to)
                return 0;
        if (check < 0 || bpf_l4_csum_replace(skb, check, from, to, (flags & ~BPF_F_PSEUDO_HDR) | 2))
                return -1;
        return bpf_skb_store_bytes(skb, p->l4 + 2 * which, &to, 2, 0);
}

static __always_inline int to_resolver(struct __sk_buff *skb, const Packet *p) {
        const NetConfig *c = config_get();
        NetAddr from = p->dst, to;

        if (!c || !is_dns(p, p->dport, DNS_PORT))
                return -1;
        to = p->tag == NET_TAG4 ? c->resolver4 : c->resolver6;
        if (to.w[0] == 0 || rewrite(skb, p, OFFSET_DST, &from, &to))
                return -1;
        return rewrite_port(skb, p, OFFSET_DST, c->resolver_port);
}

/* What the sandbox sent to the resolver and is told of, it sent to the gateway. */
FUNCTION int quoted_from_resolver(struct __sk_buff *skb, const Packet *p, const Packet *quoted, __u32 port) {
        __be16 from = bpf_htons(port), to = bpf_htons(DNS_PORT);
        NetAddr resolver, gateway;

        if (!p || !quoted)
                return -1;
        resolver = quoted->dst;
        inner_addr(p->tag, 1, &gateway);
        if (rewrite_quoted(skb, p, OFFSET_DST, &resolver, &gateway) || bpf_skb_store_bytes(skb, quoted->l4 + 2, &to, 2, 0))
                return -1;
        return add_icmp_checksum(skb, p, fold((__u16) ~from + (__u32) to));
}

/* An answer of the resolver's comes from the gateway. */
static __always_inline int from_resolver(struct __sk_buff *skb, const Packet *p, const NetConfig *c, NetAddr *gateway) {
        NetAddr resolver = p->tag == NET_TAG4 ? c->resolver4 : c->resolver6;

        if (resolver.w[0] == 0 || !addr_equal(&p->src, &resolver) || !is_dns(p, p->sport, c->resolver_port))
                return 0;
        return rewrite(skb, p, OFFSET_SRC, &resolver, gateway) ? -1 : rewrite_port(skb, p, OFFSET_SRC, DNS_PORT);
}

SEC("tc")
int from_guest(struct __sk_buff *skb) {
        const NetSlot *s;
        Packet p = {};
        NetAddr guest, gateway, own;
        __u32 slot;

        if (ifindex_slot(skb->ifindex, NET_LINK_TAP, &slot) < 0 || !(s = bpf_map_lookup_elem(&slots, &slot)))
                return TC_ACT_SHOT;
        skb->mark = 0;
        if (skb->vlan_present)
                return TC_ACT_SHOT;
        if (skb->protocol == bpf_htons(ETH_P_ARP))
                return TC_ACT_OK;
        if (skb->protocol == bpf_htons(ETH_P_IPV6) && is_neighbour(skb))
                return TC_ACT_OK;
        if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
                return TC_ACT_SHOT;

        int r = packet_parse(skb, &p);
        inner_addr(p.tag, 0, &guest);
        inner_addr(p.tag, 1, &gateway);
        /* Any system looks for routers and listeners: not worth to be told. */
        if (p.tag == NET_TAG6 && (__u8) p.dst.w[0] == 0xff)
                return TC_ACT_SHOT;
        if (r < 0)
                return translate_drop(skb, slot, &p, NET_DENIED_MALFORMED);
        if (!macs_valid(skb) || !addr_equal(&p.src, &guest))
                return translate_drop(skb, slot, &p, NET_DENIED_SPOOFED);
        if (addr_equal(&p.dst, &gateway)) {
                if (packet_is_icmp(&p))
                        return TC_ACT_OK;
                if (to_resolver(skb, &p) < 0)
                        return TC_ACT_SHOT;
        }

        own = p.tag == NET_TAG4 ? s->addr4 : s->addr6;
        if (p.error) {
                Packet quoted = {};
                if (packet_parse_quoted(skb, &p, &quoted) < 0 || !addr_equal(&quoted.dst, &guest) ||
                    rewrite_quoted(skb, &p, OFFSET_DST, &guest, &own) < 0)
                        return TC_ACT_SHOT;
        }
        if (rewrite(skb, &p, OFFSET_SRC, &guest, &own) < 0 || write_macs(skb, s->mac_host, s->mac_peer))
                return TC_ACT_SHOT;
        /* Straight into the host's end: no queue, no second softirq. */
        return bpf_redirect_peer(NET_IFINDEX(slot, NET_LINK_PEER), 0);
}

SEC("tc")
int to_guest(struct __sk_buff *skb) {
        const __u8 guest_mac[6] = NET_GUEST_MAC, gateway_mac[6] = NET_GATEWAY_MAC;
        const NetConfig *c = config_get();
        const NetSlot *s;
        Packet p = {};
        NetAddr guest, gateway, own;
        __u32 slot;

        if (ifindex_slot(skb->ifindex, NET_LINK_PEER, &slot) < 0 || !(s = bpf_map_lookup_elem(&slots, &slot)) || !c)
                return TC_ACT_SHOT;
        if (packet_parse(skb, &p) < 0)
                return TC_ACT_SHOT;
        inner_addr(p.tag, 0, &guest);
        inner_addr(p.tag, 1, &gateway);
        own = p.tag == NET_TAG4 ? s->addr4 : s->addr6;
        if (!addr_equal(&p.dst, &own))
                return TC_ACT_SHOT;

        if (p.error) {
                Packet quoted = {};
                if (packet_parse_quoted(skb, &p, &quoted) < 0 || !addr_equal(&quoted.src, &own) ||
                    rewrite_quoted(skb, &p, OFFSET_SRC, &own, &guest) < 0)
                        return TC_ACT_SHOT;
                if (is_resolver_addr(c, p.tag, &quoted.dst) && is_dns(&quoted, quoted.dport, c->resolver_port)) {
                        NetAddr resolver = quoted.dst;
                        if (quoted_from_resolver(skb, &p, &quoted, c->resolver_port) ||
                            (addr_equal(&p.src, &resolver) && rewrite(skb, &p, OFFSET_SRC, &resolver, &gateway)))
                                return TC_ACT_SHOT;
                }
        }
        if (from_resolver(skb, &p, c, &gateway) < 0)
                return TC_ACT_SHOT;
        if (rewrite(skb, &p, OFFSET_DST, &own, &guest) < 0 || write_macs(skb, guest_mac, gateway_mac))
                return TC_ACT_SHOT;
        return bpf_redirect(NET_IFINDEX(slot, NET_LINK_TAP), 0);
}
