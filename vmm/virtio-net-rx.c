/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <linux/virtio_net.h>

#include "vmm/virtio-net-rx.h"
#include "vmm/virtio-net-tx.h"

void net_rx_forget(NetRx *x) {
        assert(x);

        x->n_chains = x->n_iov = 0;
        x->bytes = 0;
}

bool net_rx_wants(const NetRx *x) {
        assert(x);

        if (!x->mergeable)
                return x->n_chains == 0;
        return x->bytes <= NET_FRAME_MAX && x->n_chains < NET_RX_QUEUE_SIZE &&
               x->n_iov + VIRT_CHAIN_PARTS_MAX <= NET_RX_IOV_MAX;
}

void net_rx_add(NetRx *x, const VirtChain *chain, const GuestMem *mem) {
        size_t bytes;

        assert(net_rx_wants(x));

        size_t n = virt_chain_writable_iov(chain, mem, 0, UINT32_MAX, x->iov + x->n_iov, &bytes);
        x->chains[x->n_chains++] = (NetRxChain) {
                .head = chain->head,
                .n_iov = (uint16_t) n,
                .bytes = (uint32_t) bytes,
        };
        x->n_iov += n;
        x->bytes += bytes;
}

uint64_t net_rx_room(const NetRx *x) {
        assert(x);

        if (x->n_chains == 0)
                return 0;
        return x->mergeable ? x->bytes : x->chains[0].bytes;
}

unsigned net_rx_room_iov(const NetRx *x) {
        assert(x);

        if (x->n_chains == 0)
                return 0;
        return x->mergeable ? x->n_iov : x->chains[0].n_iov;
}

/* Into what is there, or out of it. */
static void copy(const NetRx *x, uint64_t offset, uint8_t *data, size_t size, bool into) {
        for (unsigned i = 0; i < x->n_iov && size > 0; i++) {
                const struct iovec *v = &x->iov[i];

                if (offset >= v->iov_len) {
                        offset -= v->iov_len;
                        continue;
                }
                size_t n = MIN(v->iov_len - offset, size);
                uint8_t *there = (uint8_t *) v->iov_base + offset;
                memcpy(into ? there : data, into ? data : there, n);
                data += n;
                size -= n;
                offset = 0;
        }
}

void net_rx_read(const NetRx *x, uint64_t offset, void *data, size_t size) {
        assert(x);

        copy(x, offset, data, size, false);
        guest_mem_copied();
}

void net_rx_write(const NetRx *x, uint64_t offset, const void *data, size_t size) {
        assert(x);

        copy(x, offset, (uint8_t *) data, size, true);
}

/* The first n chains, with the iov that were theirs. */
static void drop_first(NetRx *x, unsigned n) {
        unsigned n_iov = 0;

        for (unsigned i = 0; i < n; i++) {
                n_iov += x->chains[i].n_iov;
                x->bytes -= x->chains[i].bytes;
        }
        x->n_chains -= n;
        x->n_iov -= n_iov;
        memmove(x->chains, x->chains + n, x->n_chains * sizeof(x->chains[0]));
        memmove(x->iov, x->iov + n_iov, x->n_iov * sizeof(x->iov[0]));
}

void net_rx_give(NetRx *x, VirtQueue *ring, uint64_t bytes) {
        VirtUsed used[NET_RX_QUEUE_SIZE];
        unsigned n = 0;

        assert(bytes <= net_rx_room(x));

        for (; bytes > 0; n++) {
                used[n] = (VirtUsed) { .head = x->chains[n].head, .written = (uint32_t) MIN(x->chains[n].bytes, bytes) };
                bytes -= used[n].written;
        }

        /* 5.1.6.4: it is there, and says 1, also where buffers can't be merged. */
        uint16_t n_buffers = htole16((uint16_t) n);
        net_rx_write(x, offsetof(struct virtio_net_hdr_v1, num_buffers), &n_buffers, sizeof(n_buffers));
        virtqueue_push_all(ring, used, n);
        drop_first(x, n);
}

void net_rx_return(NetRx *x, VirtQueue *ring) {
        VirtChain chain;

        assert(x);

        for (unsigned i = x->n_chains; i > 0; i--) {
                chain.head = x->chains[i - 1].head;
                virtqueue_unpop(ring, &chain);
        }
        net_rx_forget(x);
}
