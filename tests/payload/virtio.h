/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A driver for modern virtio over PCI (virtio 1.2, 2.7, 4.1): just enough to run one queue at a time.
 * Split rings without EVENT_IDX, one MSI-X vector for everything. */

#include "lib.h"

#define RING_SIZE 64U /* entries used; a queue may offer more */

typedef struct PACKED Desc {
        uint64_t addr;
        uint32_t len;
        uint16_t flags;
        uint16_t next;
} Desc;

#define DESC_NEXT 1U
#define DESC_WRITE 2U

typedef struct Queue {
        Desc desc[RING_SIZE];
        struct {
                uint16_t flags, idx, ring[RING_SIZE], used_event;
        } avail;
        struct {
                uint16_t flags, idx;
                struct {
                        uint32_t id, len;
                } ring[RING_SIZE];
                uint16_t avail_event;
        } used __attribute__((aligned(4)));
        uint64_t notify;      /* address of its doorbell */
        uint16_t index;
        uint16_t last_used;
} __attribute__((aligned(4096))) Queue;

typedef struct Device {
        uint64_t ecam;        /* 0: not there */
        uint64_t common, isr, config, notify;
        uint32_t notify_stride;
} Device;

/* Configuration space of the nth device with this virtio device ID. False: none. */
bool virtio_find(uint16_t type, unsigned nth, Device *ret);
/* Configuration space of the first function with these ids, 0: none; *ret_bar is its first BAR. */
uint64_t pci_find(uint16_t vendor, uint16_t device, unsigned nth, uint64_t *ret_bar);
/* Up to FEATURES_OK, with these of the first 32 features. */
bool virtio_begin(const Device *d, uint32_t features);
bool virtio_queue(const Device *d, uint16_t index, Queue *q, bool interrupts);
void virtio_ready(const Device *d);
uint8_t virtio_status(const Device *d);

/* Its indices as they are before the first chain. */
void queue_clear(Queue *q);
/* Makes the chain that starts at descriptor head available. Rings no bell. */
void queue_offer(Queue *q, uint16_t head);
void queue_kick(const Queue *q);
/* True with the next used element. */
bool queue_take(Queue *q, uint32_t *ret_head, uint32_t *ret_len);
