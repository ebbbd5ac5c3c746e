/* SPDX-License-Identifier: Apache-2.0 */
#include "virtio.h"

#define ECAM 0xe0000000ULL
#define SLOTS 10U

#define PCI_COMMAND 0x04U
#define PCI_BAR0 0x10U
#define PCI_CAPABILITIES 0x34U
#define CAP_VENDOR 0x09U
#define CAP_MSIX 0x11U
#define MSIX_ENABLE 0x8000U

#define COMMON_DRIVER_SELECT 0x08U
#define COMMON_DRIVER_FEATURES 0x0cU
#define COMMON_CONFIG_VECTOR 0x10U
#define COMMON_STATUS 0x14U
#define COMMON_QUEUE_SELECT 0x16U
#define COMMON_QUEUE_SIZE 0x18U
#define COMMON_QUEUE_VECTOR 0x1aU
#define COMMON_QUEUE_ENABLE 0x1cU
#define COMMON_QUEUE_NOTIFY 0x1eU
#define COMMON_QUEUE_DESC 0x20U
#define COMMON_QUEUE_DRIVER 0x28U
#define COMMON_QUEUE_DEVICE 0x30U

#define AVAIL_NO_INTERRUPT 1U
#define MSI_ADDRESS 0xfee00000U

uint64_t pci_find(uint16_t vendor, uint16_t device, unsigned nth, uint64_t *ret_bar) {
        for (unsigned slot = 0; slot < SLOTS; slot++) {
                uint64_t ecam = ECAM + ((uint64_t) slot << 15);

                if (read32(ecam) != ((uint32_t) device << 16 | vendor) || nth-- > 0)
                        continue;
                /* Memory decoding and bus mastering. */
                write16(ecam + PCI_COMMAND, 6);
                *ret_bar = read32(ecam + PCI_BAR0) & ~15U;
                return ecam;
        }
        return 0;
}

static void take_virtio_capability(Device *d, uint64_t cap, uint64_t bar) {
        uint64_t at = bar + read32(cap + 8);

        switch (read8(cap + 3)) {
        case 1:
                d->common = at;
                break;
        case 2:
                d->notify = at;
                d->notify_stride = read32(cap + 16);
                break;
        case 3:
                d->isr = at;
                break;
        case 4:
                d->config = at;
        }
}

/* One message for all: vector 0 of the device is the only one we use. */
static void set_msix(uint64_t cap, uint64_t bar) {
        uint64_t table = bar + read32(cap + 4);

        write32(table, MSI_ADDRESS);
        write32(table + 4, 0);
        write32(table + 8, VECTOR_DEVICE);
        write32(table + 12, 0);
        write16(cap + 2, MSIX_ENABLE);
}

bool virtio_find(uint16_t type, unsigned nth, Device *ret) {
        uint64_t bar;

        *ret = (Device) { .ecam = pci_find(0x1af4, 0x1040 + type, nth, &bar) };
        if (!ret->ecam)
                return false;

        uint8_t at = read8(ret->ecam + PCI_CAPABILITIES);
        for (unsigned i = 0; at && i < 16; i++) {
                uint16_t head = read16(ret->ecam + at);

                if ((head & 0xff) == CAP_VENDOR)
                        take_virtio_capability(ret, ret->ecam + at, bar);
                else if ((head & 0xff) == CAP_MSIX)
                        set_msix(ret->ecam + at, bar);
                at = head >> 8;
        }
        return ret->common && ret->notify;
}

static void set_status(const Device *d, uint8_t v) {
        write8(d->common + COMMON_STATUS, v);
}

uint8_t virtio_status(const Device *d) {
        return read8(d->common + COMMON_STATUS);
}

bool virtio_begin(const Device *d, uint32_t features) {
        set_status(d, 0);
        while (read8(d->common + COMMON_STATUS) != 0)
                pause_cpu();
        set_status(d, 1);
        set_status(d, 3);
        write32(d->common + COMMON_DRIVER_SELECT, 0);
        write32(d->common + COMMON_DRIVER_FEATURES, features);
        /* VERSION_1, bit 32. */
        write32(d->common + COMMON_DRIVER_SELECT, 1);
        write32(d->common + COMMON_DRIVER_FEATURES, 1);
        set_status(d, 11);
        return read8(d->common + COMMON_STATUS) & 8;
}

bool virtio_queue(const Device *d, uint16_t index, Queue *q, bool interrupts) {
        write16(d->common + COMMON_QUEUE_SELECT, index);
        if (read16(d->common + COMMON_QUEUE_SIZE) == 0)
                return false;

        uint16_t size = MIN(read16(d->common + COMMON_QUEUE_SIZE), RING_SIZE);
        if (size < RING_SIZE)
                return false;
        q->index = index;
        q->avail.flags = interrupts ? 0 : AVAIL_NO_INTERRUPT;
        q->notify = d->notify + (uint64_t) read16(d->common + COMMON_QUEUE_NOTIFY) * d->notify_stride;
        write16(d->common + COMMON_QUEUE_SIZE, size);
        write16(d->common + COMMON_QUEUE_VECTOR, 0);
        write32(d->common + COMMON_QUEUE_DESC, (uint32_t) (uint64_t) q->desc);
        write32(d->common + COMMON_QUEUE_DRIVER, (uint32_t) (uint64_t) &q->avail);
        write32(d->common + COMMON_QUEUE_DEVICE, (uint32_t) (uint64_t) &q->used);
        write16(d->common + COMMON_QUEUE_ENABLE, 1);
        return read16(d->common + COMMON_QUEUE_ENABLE) == 1;
}

void virtio_ready(const Device *d) {
        set_status(d, 15);
}

void queue_clear(Queue *q) {
        q->avail.idx = q->used.idx = q->last_used = 0;
}

void queue_offer(Queue *q, uint16_t head) {
        q->avail.ring[q->avail.idx % RING_SIZE] = head;
        barrier();
        *(volatile uint16_t *) &q->avail.idx = q->avail.idx + 1;
}

void queue_kick(const Queue *q) {
        full_barrier();
        write16(q->notify, q->index);
}

bool queue_take(Queue *q, uint32_t *ret_head, uint32_t *ret_len) {
        if (*(volatile uint16_t *) &q->used.idx == q->last_used)
                return false;
        barrier();
        *ret_head = q->used.ring[q->last_used % RING_SIZE].id;
        *ret_len = q->used.ring[q->last_used % RING_SIZE].len;
        q->last_used++;
        return true;
}
