/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The entropy device (virtio 1.2, 5.4): getrandom() straight into the guest's buffers.
 *
 * A guest may ask without end, so there is an allowance of bytes that is topped up by a timer; what
 * goes beyond waits in the queue (P13). Lives on the loop's thread. */

#include "vmm/devices.h"
#include "vmm/virtio-pci.h"

#define RNG_REQUEST_BYTES_MAX KIB(64)
#define RNG_ALLOWANCE_BYTES KIB(256)
#define RNG_ALLOWANCE_USEC (250 * USEC_PER_MSEC)

typedef struct VirtioRng VirtioRng;

int virtio_rng_new(Vm *vm, Loop *loop, uint64_t bar_gpa, VirtioErrorFn on_error, void *on_error_userdata,
                   VirtioRng **ret);
VirtioRng *virtio_rng_free(VirtioRng *g);
VirtioPci *virtio_rng_pci(VirtioRng *g);
void virtio_rng_counters(VirtioRng *g, CounterFn fn, void *userdata);
