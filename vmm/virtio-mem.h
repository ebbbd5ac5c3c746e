/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The memory device (virtio 1.2, 5.15): memory that the guest gets, and gives back, while it runs.
 *
 * The region, its memslot and its mapping are there from the start; blocks of it are plugged and
 * unplugged by the guest's driver, up to the size that the host asks for. The device keeps the books:
 * which blocks are plugged, and how much. It never takes anything away by itself. An unplugged
 * block's pages go back to the host at once; should that fail the device stops, with the block
 * still plugged and the memory in place (P12).
 *
 * A reset of the device leaves the blocks as they are (5.15.5): the next driver asks for their state.
 * Nothing stops a guest from touching what is not plugged: it pays for that within its own limit, and
 * has promised not to (UNPLUGGED_INACCESSIBLE). Lives on the loop's thread. */

#include "vmm/build-config.h"
#include "vmm/devices.h"
#include "vmm/snapshot-virtio.h"

#define MEM_BLOCK_BYTES MIB(2)
#define MEM_BLOCKS_MAX (CONFIG_MEM_MAX / MEM_BLOCK_BYTES)

typedef struct VirtioMem VirtioMem;

/* Of vm's plug region, nothing plugged. */
int virtio_mem_new(Vm *vm, Loop *loop, uint64_t bar_gpa, VirtioErrorFn on_error, void *on_error_userdata,
                   VirtioMem **ret);
VirtioMem *virtio_mem_free(VirtioMem *m);
VirtioPci *virtio_mem_pci(VirtioMem *m);

/* Asks the driver to make it so many bytes: a multiple of MEM_BLOCK_BYTES within the region, else
 * -EINVAL. It may take its time, or stop short of it. */
int virtio_mem_request(VirtioMem *m, uint64_t bytes);
void virtio_mem_counters(VirtioMem *m, CounterFn fn, void *userdata);

/* Snapshots, while paused: what is plugged. What is asked for is in the configuration that the transport keeps. */
typedef struct MemLoad {
        uint64_t n_plugged;
        uint64_t n_requested;
        uint64_t plugged[MEM_BLOCKS_MAX / 64];
} MemLoad;

void virtio_mem_save(const VirtioMem *m, unsigned slot, SnapshotWriter *w);
/* transport: the device's, already checked. */
int virtio_mem_parse(const VirtioMem *m, const VirtioState *transport, SnapshotReader *r, MemLoad *ret, ErrorText *e);
/* Before snapshot_virtio_apply(), which else takes the configuration for changed. */
void virtio_mem_apply(VirtioMem *m, const MemLoad *l);
