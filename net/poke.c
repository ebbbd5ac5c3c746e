/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>

#include "base/macros.h"
#include "net/poke.h"

static uint32_t sum(const void *data, size_t size, uint32_t start) {
        const uint8_t *b = data;

        for (size_t i = 0; i + 1 < size; i += 2)
                start += (uint32_t) b[i] << 8 | b[i + 1];
        return start;
}

static uint16_t fold(uint32_t s) {
        s = (s & 0xffff) + (s >> 16);
        return htons((uint16_t) ~((s & 0xffff) + (s >> 16)));
}

unsigned poke_build(__u8 packet[POKE_BYTES_MAX], const NetFlowKey *key, const NetSlot *slot) {
        bool ip4 = key->tag == NET_TAG4;
        const NetAddr *own = ip4 ? &slot->addr4 : &slot->addr6;
        size_t addr = ip4 ? 4 : 16, l4 = ETH_HLEN + (ip4 ? sizeof(struct iphdr) : sizeof(struct ip6_hdr));
        struct ethhdr eth = { .h_proto = htons(ip4 ? ETH_P_IP : ETH_P_IPV6) };
        /* Far from any window, or nearly always. */
        struct tcphdr t = { .source = key->remote_port, .dest = key->local_port, .seq = htonl(0x12345678), .doff = 5, .ack = 1,
                            .window = htons(1000) };

        memcpy(eth.h_source, slot->mac_host, ETH_ALEN);
        memcpy(eth.h_dest, slot->mac_peer, ETH_ALEN);
        memcpy(packet, &eth, sizeof(eth));
        if (ip4) {
                struct iphdr ip = { .version = 4, .ihl = 5, .tot_len = htons(40), .ttl = 64, .protocol = IPPROTO_TCP,
                                    .saddr = key->remote.w[0], .daddr = own->w[0] };
                ip.check = fold(sum(&ip, sizeof(ip), 0));
                memcpy(packet + ETH_HLEN, &ip, sizeof(ip));
        } else {
                struct ip6_hdr ip = { .ip6_flow = htonl(6U << 28), .ip6_plen = htons(sizeof(t)), .ip6_nxt = IPPROTO_TCP,
                                      .ip6_hlim = 64 };
                memcpy(&ip.ip6_src, &key->remote, sizeof(ip.ip6_src));
                memcpy(&ip.ip6_dst, own, sizeof(ip.ip6_dst));
                memcpy(packet + ETH_HLEN, &ip, sizeof(ip));
        }
        t.check = fold(sum(&t, sizeof(t), sum(&key->remote, addr, sum(own, addr, IPPROTO_TCP + sizeof(t)))));
        memcpy(packet + l4, &t, sizeof(t));
        return (unsigned) (l4 + sizeof(t));
}
