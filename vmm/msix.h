/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The MSI-X table and pending bits of one function (PCI 3.0, 6.8.2), and the delivery of its
 * messages by KVM_SIGNAL_MSI.
 *
 * Embedded in a device. The guest's side (table, function mask) comes from vCPU threads, signals come
 * from the device's thread: one lock inside, held over nothing that waits. A vector that doesn't
 * exist is never delivered. */

#include <pthread.h>

#include "vmm/vm.h"

#define MSIX_VECTORS_MAX 16U
#define MSIX_ENTRY_BYTES 16U

typedef struct MsixEntry {
        uint64_t address;
        uint32_t data;
        uint32_t control;         /* bit 0: masked */
} MsixEntry;

typedef struct Msix {
        pthread_mutex_t lock;
        Vm *vm;
        unsigned n_vectors;
        MsixEntry entries[MSIX_VECTORS_MAX];
        uint32_t pending;         /* one bit a vector */
        bool enabled;
        bool masked;              /* the whole function */
        uint64_t delivered;
        uint64_t failed;          /* KVM refused the message; the guest wrote nonsense into it */
} Msix;

void msix_init(Msix *x, Vm *vm, unsigned n_vectors);
void msix_done(Msix *x);

/* Aligned accesses of 4 or 8 bytes (6.8.2); others read as ones and write nothing. */
uint64_t msix_table_read(Msix *x, uint64_t offset, unsigned len);
void msix_table_write(Msix *x, uint64_t offset, unsigned len, uint64_t value);
uint64_t msix_pending_read(Msix *x, uint64_t offset, unsigned len);

/* The two bits of the capability's message control word. */
void msix_set_control(Msix *x, bool enabled, bool masked);
bool msix_enabled(Msix *x);

/* Any thread. Dropped when MSI-X is off or there is no such vector; kept pending when masked. */
void msix_signal(Msix *x, unsigned vector);
