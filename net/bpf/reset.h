/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Answers to what is denied, so that programs fail fast: a TCP reset to both ends, an ICMP error for
 * the rest. They are made out of the denied packet itself.
 *
 * A program can't see whether the device is to finish the checksum of the packet that it rewrites.
 * So both kinds of answer are right either way: what a device would put there is what stands there. */

#include "packet.h"

#define RESET_TTL 64
#define IP_DF bpf_htons(0x4000)

static __always_inline __u32 sum_addresses(__u8 tag, NetAddr *src, NetAddr *dst) {
        if (tag == NET_TAG4)
                return bpf_csum_diff(NULL, 0, &dst->w[0], 4, bpf_csum_diff(NULL, 0, &src->w[0], 4, 0));
        return bpf_csum_diff(NULL, 0, dst->w, 16, bpf_csum_diff(NULL, 0, src->w, 16, 0));
}

/* Ethernet and IP headers. */
static __always_inline int write_ip(struct __sk_buff *skb, const struct ethhdr *eth, __u8 tag, NetAddr *src, NetAddr *dst,
                                    __u8 proto, __u16 payload) {
        if (bpf_skb_store_bytes(skb, 0, eth, sizeof(*eth), 0))
                return -1;
        if (tag == NET_TAG4) {
                struct iphdr ip = {
                        .version = 4,
                        .ihl = 5,
                        .tot_len = bpf_htons(sizeof(ip) + payload),
                        .frag_off = IP_DF,
                        .ttl = RESET_TTL,
                        .protocol = proto,
                        .saddr = src->w[0],
                        .daddr = dst->w[0],
                };
                ip.check = ~fold(bpf_csum_diff(NULL, 0, (__be32 *) &ip, sizeof(ip), 0));
                return bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0);
        }
        struct ipv6hdr ip = {
                .version = 6,
                .payload_len = bpf_htons(payload),
                .nexthdr = proto,
                .hop_limit = RESET_TTL,
        };
        __builtin_memcpy(&ip.saddr, src, 16);
        __builtin_memcpy(&ip.daddr, dst, 16);
        return bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0);
}

typedef struct Reset {
        NetAddr src, dst;
        struct ethhdr eth;
        __u16 sport, dport;
        __be32 seq, ack;
        __u8 tag, with_ack;
} Reset;

FUNCTION int write_reset(struct __sk_buff *skb, Reset *r) {
        struct tcphdr t = {};

        if (!r)
                return -1;
        t.source = r->sport;
        t.dest = r->dport;
        t.seq = r->seq;
        t.ack_seq = r->with_ack ? r->ack : 0;
        t.doff = sizeof(t) / 4;
        t.rst = 1;
        t.ack = r->with_ack;

        /* P: sum of the pseudo header. A device writes ~(T + P) where P stands; an unfinished checksum is P
         * itself. With the window, which means nothing in a reset, as ~(T + 2P), both are the same. */
        __u32 pseudo = fold(sum_addresses(r->tag, &r->src, &r->dst) + bpf_htons(IPPROTO_TCP) + bpf_htons(sizeof(t)));
        __u32 header = fold(bpf_csum_diff(NULL, 0, (__be32 *) &t, sizeof(t), 0));
        t.window = ~fold(header + 2 * pseudo);
        t.check = pseudo;

        if (write_ip(skb, &r->eth, r->tag, &r->src, &r->dst, IPPROTO_TCP, sizeof(t)))
                return -1;
        return bpf_skb_store_bytes(skb, r->tag == NET_TAG4 ? 34 : 54, &t, sizeof(t), 0);
}

static __always_inline void swap_ends(Reset *r) {
        NetAddr a = r->src;
        __u16 port = r->sport;
        __u8 mac[ETH_ALEN];

        r->src = r->dst;
        r->dst = a;
        r->sport = r->dport;
        r->dport = port;
        __builtin_memcpy(mac, r->eth.h_source, ETH_ALEN);
        __builtin_memcpy(r->eth.h_source, r->eth.h_dest, ETH_ALEN);
        __builtin_memcpy(r->eth.h_dest, mac, ETH_ALEN);
}

/* TC_ACT_OK: the packet is now a reset that goes on in its direction, after one that went back to where it came
 * from. TC_ACT_SHOT: nothing more to send. inbound: it is on its way to the sandbox. */
FUNCTION int reset_tcp(struct __sk_buff *skb, const Packet *p, int inbound) {
        Reset r = {};
        struct tcphdr t;
        __u32 payload, size;

        if (!p || !p->plain || p->fragment != FRAGMENT_NONE || (p->tcp_flags & TCP_RST))
                return TC_ACT_SHOT;
        size = p->tag == NET_TAG4 ? 54 : 74;
        r.src = p->src;
        r.dst = p->dst;
        r.sport = p->sport;
        r.dport = p->dport;
        r.tag = p->tag;
        if (bpf_skb_load_bytes(skb, p->l4, &t, sizeof(t)) || bpf_skb_load_bytes(skb, 0, &r.eth, ETH_HLEN))
                return TC_ACT_SHOT;
        if (p->tag == NET_TAG4) {
                __be16 total;
                if (bpf_skb_load_bytes(skb, ETH_HLEN + 2, &total, 2))
                        return TC_ACT_SHOT;
                payload = bpf_ntohs(total) - 20;
        } else {
                __be16 total;
                if (bpf_skb_load_bytes(skb, ETH_HLEN + 4, &total, 2))
                        return TC_ACT_SHOT;
                payload = bpf_ntohs(total);
        }
        payload -= t.doff * 4;
        if (payload > 65535)
                return TC_ACT_SHOT;
        if (bpf_skb_change_tail(skb, size, 0))
                return TC_ACT_SHOT;

        /* Back: what the sender waits for next. */
        swap_ends(&r);
        r.seq = t.ack ? t.ack_seq : 0;
        r.ack = bpf_htonl(bpf_ntohl(t.seq) + payload + t.syn + t.fin);
        r.with_ack = !t.ack;
        skb->mark = NET_MARK_RESET;
        if (write_reset(skb, &r))
                return TC_ACT_SHOT;
        bpf_clone_redirect(skb, skb->ifindex, inbound ? BPF_F_INGRESS : 0);
        if (t.syn && !t.ack)
                return TC_ACT_SHOT;

        swap_ends(&r);
        r.seq = t.seq;
        r.with_ack = 0;
        return write_reset(skb, &r) ? TC_ACT_SHOT : TC_ACT_OK;
}

#define QUOTE_MAX 48

/* An error is never the answer to one, nor to an answer. */
static __always_inline int asks(const Packet *p) {
        return !packet_is_icmp(p) || (!p->error && p->dport == 0);
}

/* Tells the sandbox that its packet may not pass: "administratively prohibited", from whom it was sent to. */
FUNCTION int refuse_other(struct __sk_buff *skb, const Packet *p) {
        const NetConfig *c = config_get();
        NetAddr src, dst, guest, from;
        struct ethhdr eth, back;
        __u8 quote[QUOTE_MAX] = {};
        struct {
                __u8 type, code;
                __u16 check, unused, filler; /* where UDP has its checksum */
        } h = {};
        __u32 sum;

        if (!p || !c || !p->plain || p->fragment != FRAGMENT_NONE || p->proto == IPPROTO_TCP || !asks(p))
                return -1;
        src = p->dst;
        dst = p->src;
        if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)))
                return -1;
        __builtin_memcpy(back.h_dest, eth.h_source, ETH_ALEN);
        __builtin_memcpy(back.h_source, eth.h_dest, ETH_ALEN);
        back.h_proto = eth.h_proto;

        if (p->tag == NET_TAG4) {
                if (bpf_skb_load_bytes(skb, ETH_HLEN, quote, 28) || bpf_skb_change_tail(skb, 34 + 8 + 28, 0))
                        return -1;
                h.type = ICMP_DEST_UNREACH;
                h.code = ICMP_PKT_FILTERED;
                sum = bpf_csum_diff(NULL, 0, (__be32 *) &h, sizeof(h), 0);
                sum = bpf_csum_diff(NULL, 0, (__be32 *) quote, 28, sum);
                h.check = ~fold(sum);
                if (write_ip(skb, &back, NET_TAG4, &src, &dst, IPPROTO_ICMP, 36) ||
                    bpf_skb_store_bytes(skb, 34, &h, sizeof(h), 0) || bpf_skb_store_bytes(skb, 42, quote, 28, 0))
                        return -1;
        } else {
                if (bpf_skb_load_bytes(skb, ETH_HLEN, quote, 48) || bpf_skb_change_tail(skb, 54 + 8 + 48, 0))
                        return -1;
                h.type = ICMPV6_DEST_UNREACH;
                h.code = ICMPV6_ADM_PROHIBITED;
                /* Stays right when the address has been translated, since a device would put there what it finds. */
                inner_addr(NET_TAG6, 0, &guest);
                from = src;
                if (is_resolver_addr(c, NET_TAG6, &src) && p->dport == bpf_htons(c->resolver_port))
                        inner_addr(NET_TAG6, 1, &from);
                h.filler = fold(sum_addresses(NET_TAG6, &from, &guest) + bpf_htons(IPPROTO_ICMPV6) + bpf_htons(56));
                sum = fold(sum_addresses(NET_TAG6, &src, &dst) + bpf_htons(IPPROTO_ICMPV6) + bpf_htons(56));
                sum = bpf_csum_diff(NULL, 0, (__be32 *) &h, sizeof(h), sum);
                sum = bpf_csum_diff(NULL, 0, (__be32 *) quote, 48, sum);
                h.check = ~fold(sum);
                if (write_ip(skb, &back, NET_TAG6, &src, &dst, IPPROTO_ICMPV6, 56) ||
                    bpf_skb_store_bytes(skb, 54, &h, sizeof(h), 0) || bpf_skb_store_bytes(skb, 62, quote, 48, 0))
                        return -1;
        }
        skb->mark = NET_MARK_RESET;
        bpf_clone_redirect(skb, skb->ifindex, 0);
        return 0;
}
