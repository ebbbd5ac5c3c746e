/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The buffers that were taken out of a guest's receive queue, and not yet filled (virtio 1.2, 5.1.6.3).
 *
 * How long a frame is shows when it has been read. So as many are held as the longest one takes, from one frame to
 * the next, and go back to the queue before anybody else looks at it (a pause). Plain data of the device's, without
 * memory of its own but what is in it. */

#include "vmm/virtqueue.h"

#define NET_RX_QUEUE_SIZE 256U
#define NET_RX_IOV_MAX (2U * VIRT_CHAIN_PARTS_MAX)

typedef struct NetRxChain {
        uint16_t head;
        uint16_t n_iov;
        uint32_t bytes;
} NetRxChain;

typedef struct NetRx {
        bool mergeable;           /* a frame may lie in several chains */
        unsigned n_chains;
        unsigned n_iov;
        uint64_t bytes;
        NetRxChain chains[NET_RX_QUEUE_SIZE];
        struct iovec iov[NET_RX_IOV_MAX];  /* of all chains, one behind the other */
} NetRx;

void net_rx_forget(NetRx *x);
/* Whether another chain could be of use, and has a place. */
bool net_rx_wants(const NetRx *x);
void net_rx_add(NetRx *x, const VirtChain *chain, const GuestMem *mem);

/* What one frame can have, and where. */
uint64_t net_rx_room(const NetRx *x);
unsigned net_rx_room_iov(const NetRx *x);
/* As far as there is a place. */
void net_rx_read(const NetRx *x, uint64_t offset, void *data, size_t size);
void net_rx_write(const NetRx *x, uint64_t offset, const void *data, size_t size);
/* Hands the driver the chains that a frame of so many bytes lies in, behind its header with their number. */
void net_rx_give(NetRx *x, VirtQueue *ring, uint64_t bytes);
/* Puts all back, as if they had not been taken. */
void net_rx_return(NetRx *x, VirtQueue *ring);
