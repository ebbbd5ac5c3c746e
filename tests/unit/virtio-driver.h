/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The guest's side of a virtio device, in a test: a driver that fills rings in guest memory and pokes
 * the device's registers, plus a way to run the device's loop one round at a time. */

#include "vmm/virtio-pci.h"

typedef struct Ring {
        uint16_t size;
        uint64_t desc_gpa;
        uint64_t avail_gpa;
        uint64_t used_gpa;
        uint16_t avail_idx;
        uint16_t used_idx;
} Ring;

typedef struct Driver {
        VirtioPci *device;
        GuestMem *mem;
        Ring rings[VIRTIO_QUEUES_MAX];
} Driver;

/* Descriptors as the test wants them, right or wrong. */
void ring_place(Ring *r, uint16_t size, uint64_t gpa);
uint64_t ring_bytes(uint16_t size);
void ring_desc(const Ring *r, const GuestMem *m, uint16_t i, uint64_t gpa, uint32_t len, uint16_t flags, uint16_t next);
void ring_offer(Ring *r, const GuestMem *m, uint16_t head);
void ring_set_avail_idx(const Ring *r, const GuestMem *m, uint16_t idx);
/* True with the next used element. */
bool ring_take_used(Ring *r, const GuestMem *m, uint32_t *ret_head, uint32_t *ret_len);
/* Asks for an interrupt at the next used element (EVENT_IDX). */
void ring_want_signal(const Ring *r, const GuestMem *m);

uint64_t bar_get(VirtioPci *v, uint64_t offset, unsigned len);
void bar_put(VirtioPci *v, uint64_t offset, unsigned len, uint64_t value);

/* Up to FEATURES_OK, queues enabled and MSI-X vectors set; rings are placed from gpa on. */
void driver_prepare(Driver *d, VirtioPci *v, GuestMem *m, uint64_t gpa, uint64_t features);
void driver_ok(Driver *d);
void driver_reset(Driver *d);
uint8_t driver_status(Driver *d);
void driver_kick(Driver *d, unsigned queue);

/* One round of epoll, without waiting. */
typedef struct Stepper {
        Loop *loop;
        int fd;
        LoopSource *source;
        bool entered;
} Stepper;

void stepper_init(Stepper *s);
void stepper_done(Stepper *s);
void stepper_run(Stepper *s, unsigned rounds);
