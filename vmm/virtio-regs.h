/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The common configuration registers of a virtio device (virtio 1.2, 4.1.4.3) and the state
 * machine of device_status behind them (2.1, 3.1).
 *
 * Plain data without a lock or a side effect: a write returns what the transport is to do about it.
 * A queue's registers are checked and frozen when it is enabled; after DRIVER_OK only a reset
 * changes anything (P4). What the driver may not do at that point is ignored and counted. */

#include "vmm/virtqueue.h"

#define VIRTIO_QUEUES_MAX 5U
#define VIRTIO_REGS_BYTES 56U
#define VIRTIO_NO_VECTOR 0xffffU

typedef struct VirtioQueueRegs {
        VirtQueueConfig config;
        uint16_t vector;
        bool enabled;             /* config was checked and no longer changes */
} VirtioQueueRegs;

typedef struct VirtioRegs {
        /* The device's, fixed. */
        uint64_t device_features;
        uint16_t n_queues;
        uint16_t queue_size_max;
        uint16_t n_vectors;

        /* The driver's. */
        uint64_t driver_features;
        uint32_t device_feature_select;
        uint32_t driver_feature_select;
        uint16_t config_vector;
        uint16_t queue_select;
        uint8_t status;
        uint8_t config_generation;
        bool resetting;           /* 0 was written, the device still has to let go of its queues */
        VirtioQueueRegs queues[VIRTIO_QUEUES_MAX];

        uint64_t rejected;        /* accesses that were not allowed */
} VirtioRegs;

typedef enum VirtioAction {
        VIRTIO_ACTION_NONE,
        VIRTIO_ACTION_START,      /* DRIVER_OK: queues[] are now the device's to use */
        VIRTIO_ACTION_RESET,      /* to be finished with virtio_regs_reset() */
        VIRTIO_ACTION_BAD_QUEUE,  /* NEEDS_RESET was set: the selected queue's registers make no sense */
} VirtioAction;

void virtio_regs_init(VirtioRegs *r, uint64_t device_features, uint16_t n_queues, uint16_t queue_size_max,
                      uint16_t n_vectors);
/* Back to the initial state; device_status reads 0 from here on. */
void virtio_regs_reset(VirtioRegs *r);

/* offset is a multiple of len. All ones for what isn't a register of that width. */
uint64_t virtio_regs_read(const VirtioRegs *r, unsigned offset, unsigned len);
VirtioAction virtio_regs_write(VirtioRegs *r, const GuestMem *m, unsigned offset, unsigned len, uint64_t value);

/* Sets DEVICE_NEEDS_RESET. True when the driver is up and is to be told by a configuration interrupt. */
bool virtio_regs_set_needs_reset(VirtioRegs *r);
/* DRIVER_OK was accepted and no reset is under way. */
bool virtio_regs_running(const VirtioRegs *r);
bool virtio_regs_has_feature(const VirtioRegs *r, unsigned bit);
