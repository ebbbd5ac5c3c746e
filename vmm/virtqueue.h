/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The device's end of one split virtqueue (virtio 1.2, 2.7): takes chains, gives them back.
 *
 * Owned by the device it belongs to and used by that device's thread alone. It is started with a
 * configuration that was checked once and can't change until it is stopped (P4); the device's own
 * indices never come from guest memory. Each field of the guest's is read once, into a local, and
 * judged there. A guest that breaks the rules breaks its queue: virtqueue_pop() then says -EBADMSG
 * for good, fault says why, and nothing of the queue is touched any more until it is started again. */

#include "vmm/virt-chain.h"

#define VIRTQUEUE_SIZE_MAX 256U

typedef struct VirtQueueConfig {
        uint16_t size;
        uint64_t desc_gpa;
        uint64_t avail_gpa;   /* the spec's "driver area" */
        uint64_t used_gpa;    /* the spec's "device area" */
} VirtQueueConfig;

typedef struct VirtQueueOptions {
        bool event_idx;           /* VIRTIO_F_EVENT_IDX was negotiated */
        bool indirect;            /* VIRTIO_F_INDIRECT_DESC was negotiated */
        uint64_t chain_bytes_max; /* of all parts of one chain */
} VirtQueueOptions;

typedef struct VirtQueue {
        const GuestMem *mem;
        VirtQueueConfig config;
        VirtQueueOptions options;
        bool started;
        const char *fault;        /* why it is broken, for the journal; NULL: it is not */
        uint16_t avail_seen;      /* the driver's index as last read */
        uint16_t avail_next;      /* ours: the next entry to take */
        uint16_t used_next;
        uint16_t used_signalled;  /* used_next when an interrupt was last considered */
        uint64_t in_flight[VIRTQUEUE_SIZE_MAX / 64];
} VirtQueue;

/* P4: 0, or -EINVAL when size, alignment or place don't hold. */
int virtqueue_config_check(const VirtQueueConfig *c, uint16_t size_max, const GuestMem *m);

/* config must have passed virtqueue_config_check(). */
void virtqueue_start(VirtQueue *q, const GuestMem *m, const VirtQueueConfig *config, const VirtQueueOptions *options);
void virtqueue_stop(VirtQueue *q);

/* 1 and the next chain, 0 when there is none (or the queue isn't started), -EBADMSG when broken. */
int virtqueue_pop(VirtQueue *q, VirtChain *ret);
/* Takes back the pop just made, as if it had not happened. Only for the very last one popped. */
void virtqueue_unpop(VirtQueue *q, const VirtChain *c);
/* Hands a chain back with the count of bytes written to it (P8: never more than it had room for). */
void virtqueue_push(VirtQueue *q, const VirtChain *c, uint64_t written);

typedef struct VirtUsed {
        uint16_t head;            /* of a chain that was popped */
        uint32_t written;         /* never more than it had room for */
} VirtUsed;

/* Hands several chains back in one step: a driver sees all of them or none. */
void virtqueue_push_all(VirtQueue *q, const VirtUsed *used, size_t n);

/* Whether the driver wants an interrupt for what was pushed since the last call. */
bool virtqueue_should_signal(VirtQueue *q);
/* Asks the driver to kick for the next chain. True when one is there already: pop again. */
bool virtqueue_rearm(VirtQueue *q);
