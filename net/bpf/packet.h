/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads the headers of a frame, of which nothing is believed. Data may lie anywhere in a large
 * packet, so everything is copied out. */

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "maps.h"

/* <linux/icmp.h> drags libc's headers in. */
#define ICMP_ECHOREPLY 0
#define ICMP_DEST_UNREACH 3
#define ICMP_ECHO 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMP_PKT_FILTERED 13
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PARAMPROB 4
#define ICMPV6_ADM_PROHIBITED 1
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129

#define IP_MF bpf_htons(0x2000)
#define IP_OFFSET 0x1fffU
#define EXTENSIONS_MAX 4
#define DNS_PORT 53
/* Of its headers: a fragment that begins before this offset (in units of 8 bytes) is there to
 * write over those that were judged. */
#define FRAGMENT_OFFSET_MIN 3U

typedef enum Fragment {
        FRAGMENT_NONE,
        FRAGMENT_FIRST,
        FRAGMENT_LATER,
} Fragment;

typedef struct Packet {
        NetAddr src, dst;
        __u8 tag, proto;
        __u8 fragment;
        __u8 plain;            /* nothing between IP header and protocol */
        __u8 error;            /* ICMP: about another packet, which begins at l4 + 8 */
        __u8 tcp_flags;        /* TCP: byte 13 */
        __u16 l4;              /* offset */
        __u16 sport, dport;    /* ICMP echo: its id and 0, turned so that the asker's is its port */
        __u32 id;              /* of the datagram, for fragments */
} Packet;

#define TCP_FIN 1U
#define TCP_SYN 2U
#define TCP_RST 4U
#define TCP_ACK 16U

static __always_inline int packet_is_icmp(const Packet *p) {
        return p->proto == (p->tag == NET_TAG4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

static __always_inline int parse_ip4(struct __sk_buff *skb, __u32 offset, Packet *p) {
        struct iphdr ip;

        if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)))
                return -1;
        /* Options can name another way than the one that is judged. */
        if (ip.version != 4 || ip.ihl != 5)
                return -1;
        p->tag = NET_TAG4;
        p->proto = ip.protocol;
        p->src.w[0] = ip.saddr;
        p->dst.w[0] = ip.daddr;
        p->l4 = offset + sizeof(ip);
        p->plain = 1;
        p->id = ip.id;
        __u32 at = bpf_ntohs(ip.frag_off) & IP_OFFSET;
        if (at > 0) {
                p->fragment = FRAGMENT_LATER;
                return at < FRAGMENT_OFFSET_MIN ? -1 : 0;
        }
        p->fragment = ip.frag_off & IP_MF ? FRAGMENT_FIRST : FRAGMENT_NONE;
        return 0;
}

typedef struct Extension {
        __u8 next, len;
        __be16 offset;         /* of a fragment header */
        __be32 id;
} Extension;

static __always_inline int parse_ip6(struct __sk_buff *skb, __u32 offset, Packet *p) {
        struct ipv6hdr ip;

        if (bpf_skb_load_bytes(skb, offset, &ip, sizeof(ip)) || ip.version != 6)
                return -1;
        p->tag = NET_TAG6;
        __builtin_memcpy(&p->src, &ip.saddr, 16);
        __builtin_memcpy(&p->dst, &ip.daddr, 16);

        __u32 at = offset + sizeof(ip);
        __u8 next = ip.nexthdr;
        p->plain = 1;
        for (int i = 0; i < EXTENSIONS_MAX; i++) {
                if (next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS && next != IPPROTO_FRAGMENT)
                        break;
                Extension e;
                if (p->fragment == FRAGMENT_LATER || bpf_skb_load_bytes(skb, at, &e, sizeof(e)))
                        return -1;
                p->plain = 0;
                if (next == IPPROTO_FRAGMENT) {
                        __u32 units = bpf_ntohs(e.offset) >> 3;
                        p->id = e.id;
                        p->fragment = units > 0 ? FRAGMENT_LATER :
                                      e.offset & bpf_htons(1) ? FRAGMENT_FIRST : FRAGMENT_NONE;
                        if (units > 0 && units < FRAGMENT_OFFSET_MIN)
                                return -1;
                        at += 8;
                } else
                        at += ((__u32) e.len + 1) * 8;
                next = e.next;
                if (p->fragment == FRAGMENT_LATER)
                        break;
        }
        p->proto = next;
        p->l4 = at;
        if (p->fragment == FRAGMENT_LATER)
                return 0;
        /* A routing header names another destination than the one that is judged. */
        return next == IPPROTO_ROUTING || next == IPPROTO_HOPOPTS || next == IPPROTO_DSTOPTS ||
               next == IPPROTO_FRAGMENT ? -1 : 0;
}

static __always_inline int parse_icmp(struct __sk_buff *skb, Packet *p) {
        struct {
                __u8 type, code;
                __u16 check, id, seq;
        } h;

        if (bpf_skb_load_bytes(skb, p->l4, &h, sizeof(h)))
                return -1;
        if (p->tag == NET_TAG4) {
                p->error = h.type == ICMP_DEST_UNREACH || h.type == ICMP_TIME_EXCEEDED || h.type == ICMP_PARAMETERPROB;
                if (h.type == ICMP_ECHO)
                        p->sport = h.id;
                else if (h.type == ICMP_ECHOREPLY)
                        p->dport = h.id;
                else if (!p->error)
                        return -1;
                return 0;
        }
        p->error = h.type >= ICMPV6_DEST_UNREACH && h.type <= ICMPV6_PARAMPROB;
        if (h.type == ICMPV6_ECHO_REQUEST)
                p->sport = h.id;
        else if (h.type == ICMPV6_ECHO_REPLY)
                p->dport = h.id;
        else if (!p->error)
                return -1;
        return 0;
}

/* Ports of a packet that is not a later fragment. inner: only the 8 bytes that an ICMP error quotes. */
static __always_inline int parse_l4(struct __sk_buff *skb, Packet *p, int inner) {
        if (p->proto == IPPROTO_TCP && !inner) {
                __u8 h[sizeof(struct tcphdr)];
                if (bpf_skb_load_bytes(skb, p->l4, h, sizeof(h)))
                        return -1;
                p->sport = *(__u16 *) h;
                p->dport = *(__u16 *) (h + 2);
                p->tcp_flags = h[13];
                return h[12] >> 4 < 5 ? -1 : 0;
        }
        if (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP) {
                __u16 h[4];
                if (bpf_skb_load_bytes(skb, p->l4, h, sizeof(h)))
                        return -1;
                p->sport = h[0];
                p->dport = h[1];
                return 0;
        }
        return packet_is_icmp(p) ? parse_icmp(skb, p) : 0;
}

/* *p zeroed. */
FUNCTION int packet_parse(struct __sk_buff *skb, Packet *p) {
        int r;

        if (!p)
                return -1;
        if (skb->protocol == bpf_htons(ETH_P_IP))
                r = parse_ip4(skb, ETH_HLEN, p);
        else if (skb->protocol == bpf_htons(ETH_P_IPV6))
                r = parse_ip6(skb, ETH_HLEN, p);
        else
                return -1;
        if (r < 0 || p->fragment == FRAGMENT_LATER)
                return r;
        return parse_l4(skb, p, 0);
}

/* The packet that an ICMP error is about. *p zeroed. */
FUNCTION int packet_parse_quoted(struct __sk_buff *skb, const Packet *error, Packet *p) {
        __u32 at;
        int r;

        if (!error || !p)
                return -1;
        at = error->l4 + 8;
        r = error->tag == NET_TAG4 ? parse_ip4(skb, at, p) : parse_ip6(skb, at, p);
        if (r < 0 || p->fragment == FRAGMENT_LATER)
                return -1;
        return parse_l4(skb, p, 1);
}
