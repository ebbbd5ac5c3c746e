/* SPDX-License-Identifier: Apache-2.0 */
#include "blk.h"

#define DISKS 2U

static struct Disk {
        bool tried, ready;
        Device device;
        Queue queue;
} disks[DISKS];

static struct Disk *open_disk(unsigned i) {
        struct Disk *d = i < DISKS ? &disks[i] : NULL;

        if (!d)
                return NULL;
        if (!d->tried) {
                d->tried = true;
                if (virtio_find(2, i, &d->device) && virtio_begin(&d->device, 0) &&
                    virtio_queue(&d->device, 0, &d->queue, false)) {
                        virtio_ready(&d->device);
                        d->ready = true;
                }
        }
        return d->ready ? d : NULL;
}

uint64_t blk_capacity(unsigned disk) {
        struct Disk *d = open_disk(disk);

        return d ? read32(d->device.config) | (uint64_t) read32(d->device.config + 4) << 32 : 0;
}

int blk_request(unsigned disk, uint32_t type, uint64_t sector, void *data) {
        static volatile uint8_t status;
        struct PACKED {
                uint32_t type, reserved;
                uint64_t sector;
        } header = { .type = type, .sector = sector };
        struct Disk *d = open_disk(disk);
        uint32_t head, len;

        if (!d)
                return -1;

        status = 0xff;
        d->queue.desc[0] = (Desc) {
                .addr = (uint64_t) &header,
                .len = sizeof(header),
                .flags = DESC_NEXT,
                .next = type == BLK_FLUSH ? 2 : 1,
        };
        d->queue.desc[1] = (Desc) {
                .addr = (uint64_t) data,
                .len = SECTOR_BYTES,
                .flags = type == BLK_READ ? DESC_NEXT | DESC_WRITE : DESC_NEXT,
                .next = 2,
        };
        d->queue.desc[2] = (Desc) { .addr = (uint64_t) &status, .len = 1, .flags = DESC_WRITE };
        queue_offer(&d->queue, 0);
        queue_kick(&d->queue);
        while (!queue_take(&d->queue, &head, &len))
                pause_cpu();
        return status;
}
