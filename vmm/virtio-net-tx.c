/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <stddef.h>

#include "vmm/virtio-net-tx.h"

#define ETHERNET_BYTES 14U
#define TCP_BYTES 20U
#define TCP_CHECKSUM_OFFSET 16U

static bool negotiated(uint64_t features, unsigned bit) {
        return features & (1ULL << bit);
}

static const char *check_checksum(const struct virtio_net_hdr_v1 *h, uint64_t frame_bytes, uint64_t features) {
        uint64_t start = le16toh(h->csum_start), offset = le16toh(h->csum_offset);

        if (!negotiated(features, VIRTIO_NET_F_CSUM))
                return "a checksum left to us without the feature";
        if (start < ETHERNET_BYTES || start + offset + 2 > frame_bytes)
                return "a checksum outside of the frame";
        return NULL;
}

static const char *check_segmentation(const struct virtio_net_hdr_v1 *h, uint64_t frame_bytes,
                                      uint64_t features) {
        uint64_t start = le16toh(h->csum_start), size = le16toh(h->gso_size);
        unsigned feature = h->gso_type == VIRTIO_NET_HDR_GSO_TCPV4 ? VIRTIO_NET_F_HOST_TSO4 : VIRTIO_NET_F_HOST_TSO6;

        if (h->gso_type != VIRTIO_NET_HDR_GSO_TCPV4 && h->gso_type != VIRTIO_NET_HDR_GSO_TCPV6)
                return "segmentation of an unknown kind";
        if (!negotiated(features, feature))
                return "segmentation without the feature";
        if (!(h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) || le16toh(h->csum_offset) != TCP_CHECKSUM_OFFSET)
                return "segmentation without TCP's checksum";
        if (start + TCP_BYTES > frame_bytes || le16toh(h->hdr_len) > frame_bytes)
                return "headers longer than the frame";
        if (size == 0 || frame_bytes / size > NET_SEGMENTS_MAX)
                return "segments too small";
        return NULL;
}

const char *net_header_check(struct virtio_net_hdr_v1 *h, uint64_t frame_bytes, uint64_t features) {
        const char *why = NULL;

        assert(h);

        h->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM;
        h->num_buffers = 0;
        if (h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
                why = check_checksum(h, frame_bytes, features);
        else
                h->csum_start = h->csum_offset = 0;
        if (why)
                return why;

        if (h->gso_type != VIRTIO_NET_HDR_GSO_NONE)
                return check_segmentation(h, frame_bytes, features);
        h->gso_size = h->hdr_len = 0;
        return NULL;
}

int net_send(int fd, const VirtChain *chain, const GuestMem *mem, uint64_t features, const char **ret_why) {
        struct iovec iov[1 + VIRT_CHAIN_PARTS_MAX];
        struct virtio_net_hdr_v1 h;
        size_t frame_bytes;

        assert(chain);
        assert(ret_why);

        *ret_why = "a frame that is too short, or too long";
        if (chain->readable_bytes < NET_FRAME_MIN || chain->readable_bytes > NET_FRAME_MAX ||
            virt_chain_read(chain, mem, 0, &h, sizeof(h)) < sizeof(h))
                return -EBADMSG;

        /* What was checked is what is sent; behind it the frame is the guest's to change. */
        size_t n = virt_chain_readable_iov(chain, mem, sizeof(h), UINT64_MAX, iov + 1, &frame_bytes);
        *ret_why = net_header_check(&h, frame_bytes, features);
        if (*ret_why)
                return -EBADMSG;

        iov[0] = (struct iovec) { .iov_base = &h, .iov_len = sizeof(h) };
        ssize_t r = writev(fd, iov, (int) n + 1);
        if (r >= 0)
                return 0;
        if (errno != EINVAL)
                return -errno;
        *ret_why = "a header that the host's kernel refuses";
        return -EBADMSG;
}
