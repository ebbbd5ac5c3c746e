/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What devices.c and devices-snapshot.c share: the devices themselves. */

#include "vmm/devices.h"
#include "vmm/pvpanic-pci.h"
#include "vmm/virtio-balloon.h"
#include "vmm/virtio-blk.h"
#include "vmm/virtio-mem.h"
#include "vmm/virtio-net.h"
#include "vmm/virtio-rng.h"
#include "vmm/virtio-vsock.h"

typedef enum Slot {
        SLOT_HOST_BRIDGE,
        SLOT_VSOCK,
        SLOT_VDA,
        SLOT_VDB,
        SLOT_RNG,
        SLOT_PVPANIC,
        SLOT_NET,
        SLOT_BALLOON,
        SLOT_MEM,
        _SLOT_MAX,
} Slot;

struct Devices {
        Vm *vm;
        DeviceEvents events;
        PciFunction *slots[_SLOT_MAX]; /* NULL: empty */

        PciFunction host_bridge;
        Pvpanic pvpanic;
        VirtioVsock *vsock;
        VirtioRng *rng;
        VirtioBalloon *balloon;
        VirtioMem *mem; /* NULL: no region for it */
        VirtioNet *net;
        VirtioBlk *disks[2];

        /* The thread that serves the disks. */
        Loop *disk_loop;
        pthread_t disk_thread;
        bool disk_thread_started;
        int disk_stop_fd;
        LoopSource *disk_stop_source;
        int disk_park_fd;
        LoopSource *disk_park_source;
        pthread_mutex_t park_lock; /* the three below; while parked, all that belongs to the thread is ours */
        pthread_cond_t park_changed;
        bool park_wanted;
        uint64_t park_round;       /* counts what was wanted, since the thread may sleep through the end of one */
        uint64_t parked_round;     /* the last one that it has come to rest for */
};
