/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* State of a PCI function and of the virtio transport, as it is stored in a snapshot.
 *
 * Saved and loaded while the device is quiet (virtio_pci_pause(), or never started). Loading has two steps:
 * parse checks all that a file says against the device as it is built here and changes nothing; apply can't
 * fail. A driver's registers are checked by writing them again, by the code that a guest's writes go through,
 * in the order in which a driver may. */

#include "vmm/snapshot-file.h"
#include "vmm/virtio-pci.h"

typedef struct PciState {
        uint8_t config[PCI_CONFIG_BYTES];
        uint32_t bar_sizing;
        uint32_t reserved;
} PciState;

typedef struct QueueState {
        uint64_t desc_gpa;
        uint64_t avail_gpa;
        uint64_t used_gpa;
        uint16_t size;
        uint16_t vector;
        uint16_t enabled;
        uint16_t avail_next;
        uint16_t used_next;
        uint16_t used_signalled;
        uint32_t reserved;
        uint64_t in_flight[VIRTQUEUE_SIZE_MAX / 64];
} QueueState;

/* What the section holds. */
typedef struct VirtioState {
        uint32_t type;
        uint16_t n_queues;
        uint16_t n_vectors;
        uint64_t device_features;
        uint64_t driver_features;
        uint32_t device_feature_select;
        uint32_t driver_feature_select;
        uint16_t config_vector;
        uint16_t queue_select;
        uint8_t status;
        uint8_t config_generation;
        uint8_t isr;
        uint8_t live;
        uint8_t failed;
        uint8_t config_changed;   /* and the driver not told yet */
        uint8_t reserved[2];
        uint32_t config_bytes;
        uint8_t config[VIRTIO_CONFIG_BYTES_MAX];
        uint32_t msix_pending;
        uint32_t reserved2;
        MsixEntry msix[MSIX_VECTORS_MAX];
        QueueState queues[VIRTIO_QUEUES_MAX];
} VirtioState;

/* A checked one, and the registers that came of it. */
typedef struct VirtioLoad {
        VirtioState state;
        VirtioRegs regs;
} VirtioLoad;

void snapshot_pci_save(PciFunction *f, unsigned slot, SnapshotWriter *w);
int snapshot_pci_parse(const PciFunction *f, SnapshotReader *r, PciState *ret, ErrorText *e);
void snapshot_pci_apply(PciFunction *f, const PciState *s);

void snapshot_virtio_save(VirtioPci *v, unsigned slot, SnapshotWriter *w);
int snapshot_virtio_parse(const VirtioPci *v, SnapshotReader *r, VirtioLoad *ret, ErrorText *e);
/* Behind snapshot_pci_apply(). Nobody else may touch the device meanwhile. */
void snapshot_virtio_apply(VirtioPci *v, const VirtioLoad *l);
