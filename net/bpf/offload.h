/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a VMM may ask of devices on the packet's way out.
 *
 * With each packet it says where a checksum is to be written, and the kernel does so after the
 * verdict: into the port or the address that was judged, if the VMM likes. So the place must be that of the
 * protocol's checksum. The context of a program does not show it, the kernel's own structure does. */

#include <bpf/bpf_core_read.h>

#include "packet.h"

struct sk_buff {
        unsigned char *head, *data;
        __u16 csum_start, csum_offset;
        __u8 ip_summed : 2;
} __attribute__((preserve_access_index));

#define CHECKSUM_PARTIAL 3

static __always_inline int checksum_place_valid(struct __sk_buff *ctx, const Packet *p) {
        struct sk_buff *skb = (struct sk_buff *) ctx;
        __u64 head = 0, data = 0;
        __u16 start = 0, offset = 0;

        if (BPF_CORE_READ_BITFIELD_PROBED(skb, ip_summed) != CHECKSUM_PARTIAL)
                return 1;
        bpf_core_read(&head, sizeof(head), &skb->head);
        bpf_core_read(&data, sizeof(data), &skb->data);
        bpf_core_read(&start, sizeof(start), &skb->csum_start);
        bpf_core_read(&offset, sizeof(offset), &skb->csum_offset);
        if (p->fragment == FRAGMENT_LATER || head + start != data + p->l4)
                return 0;
        if (p->proto == IPPROTO_TCP)
                return offset == 16;
        return p->proto == IPPROTO_UDP && offset == 6;
}
