/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>
#include <sys/eventfd.h>

#include "virtio-driver.h"

uint64_t ring_bytes(uint16_t size) {
        return ALIGN_UP(size * 16ULL + 6 + size * 2ULL, 4ULL) + 6 + size * 8ULL;
}

void ring_place(Ring *r, uint16_t size, uint64_t gpa) {
        *r = (Ring) {
                .size = size,
                .desc_gpa = gpa,
                .avail_gpa = gpa + size * 16ULL,
                .used_gpa = gpa + ALIGN_UP(size * 16ULL + 6 + size * 2ULL, 4ULL),
        };
}

static void put(const GuestMem *m, uint64_t gpa, const void *data, size_t size) {
        if (guest_mem_write(m, gpa, data, size) < 0)
                abort();
}

void ring_desc(const Ring *r, const GuestMem *m, uint16_t i, uint64_t gpa, uint32_t len, uint16_t flags, uint16_t next) {
        struct vring_desc d = { .addr = gpa, .len = len, .flags = flags, .next = next };

        put(m, r->desc_gpa + i * 16ULL, &d, sizeof(d));
}

void ring_set_avail_idx(const Ring *r, const GuestMem *m, uint16_t idx) {
        if (guest_mem_store_u16(m, r->avail_gpa + 2, idx) < 0)
                abort();
}

void ring_offer(Ring *r, const GuestMem *m, uint16_t head) {
        put(m, r->avail_gpa + 4 + (r->avail_idx % r->size) * 2ULL, &head, sizeof(head));
        ring_set_avail_idx(r, m, ++r->avail_idx);
}

bool ring_take_used(Ring *r, const GuestMem *m, uint32_t *ret_head, uint32_t *ret_len) {
        uint32_t element[2];
        uint16_t idx;

        if (guest_mem_load_u16(m, r->used_gpa + 2, &idx) < 0)
                abort();
        if (idx == r->used_idx)
                return false;
        if (guest_mem_read(m, r->used_gpa + 4 + (r->used_idx % r->size) * 8ULL, element, sizeof(element)) < 0)
                abort();
        r->used_idx++;
        *ret_head = element[0];
        *ret_len = element[1];
        return true;
}

void ring_want_signal(const Ring *r, const GuestMem *m) {
        if (guest_mem_store_u16(m, r->avail_gpa + 4 + r->size * 2ULL, r->used_idx) < 0)
                abort();
}

uint64_t bar_get(VirtioPci *v, uint64_t offset, unsigned len) {
        pthread_mutex_lock(&v->pci.lock);
        uint64_t value = v->pci.ops->bar_read(&v->pci, offset, len);
        pthread_mutex_unlock(&v->pci.lock);
        return value;
}

void bar_put(VirtioPci *v, uint64_t offset, unsigned len, uint64_t value) {
        pthread_mutex_lock(&v->pci.lock);
        v->pci.ops->bar_write(&v->pci, offset, len, value);
        pthread_mutex_unlock(&v->pci.lock);
}

static void enable_msix(VirtioPci *v) {
        for (unsigned i = 0; i < v->msix.n_vectors; i++) {
                bar_put(v, VIRTIO_BAR_MSIX_TABLE + i * 16, 8, 0xfee00000);
                bar_put(v, VIRTIO_BAR_MSIX_TABLE + i * 16 + 8, 8, 0x40 + i);
        }
        msix_set_control(&v->msix, true, false);
}

static void set_queue(Driver *d, unsigned i) {
        VirtioPci *v = d->device;
        const Ring *r = &d->rings[i];

        bar_put(v, VIRTIO_PCI_COMMON_Q_SELECT, 2, i);
        bar_put(v, VIRTIO_PCI_COMMON_Q_SIZE, 2, r->size);
        bar_put(v, VIRTIO_PCI_COMMON_Q_MSIX, 2, i + 1);
        bar_put(v, VIRTIO_PCI_COMMON_Q_DESCLO, 4, (uint32_t) r->desc_gpa);
        bar_put(v, VIRTIO_PCI_COMMON_Q_DESCHI, 4, r->desc_gpa >> 32);
        bar_put(v, VIRTIO_PCI_COMMON_Q_AVAILLO, 8, r->avail_gpa);
        bar_put(v, VIRTIO_PCI_COMMON_Q_USEDLO, 8, r->used_gpa);
        bar_put(v, VIRTIO_PCI_COMMON_Q_ENABLE, 2, 1);
}

void driver_prepare(Driver *d, VirtioPci *v, GuestMem *m, uint64_t gpa, uint64_t features) {
        *d = (Driver) { .device = v, .mem = m };

        features |= 1ULL << VIRTIO_F_VERSION_1;
        bar_put(v, VIRTIO_PCI_COMMON_STATUS, 1, 1);
        bar_put(v, VIRTIO_PCI_COMMON_STATUS, 1, 3);
        for (unsigned i = 0; i < 2; i++) {
                bar_put(v, VIRTIO_PCI_COMMON_GFSELECT, 4, i);
                bar_put(v, VIRTIO_PCI_COMMON_GF, 4, (uint32_t) (features >> (32 * i)));
        }
        bar_put(v, VIRTIO_PCI_COMMON_STATUS, 1, 11);

        enable_msix(v);
        bar_put(v, VIRTIO_PCI_COMMON_MSIX, 2, 0);
        for (unsigned i = 0; i < v->kind.n_queues; i++) {
                static const uint8_t zeros[VIRTQUEUE_SIZE_MAX * 32];

                put(m, gpa, zeros, ring_bytes(v->kind.queue_size));
                ring_place(&d->rings[i], v->kind.queue_size, gpa);
                gpa += ALIGN_UP(ring_bytes(v->kind.queue_size), 4096ULL);
                set_queue(d, i);
        }
}

void driver_ok(Driver *d) {
        bar_put(d->device, VIRTIO_PCI_COMMON_STATUS, 1, 15);
}

void driver_reset(Driver *d) {
        bar_put(d->device, VIRTIO_PCI_COMMON_STATUS, 1, 0);
}

uint8_t driver_status(Driver *d) {
        return bar_get(d->device, VIRTIO_PCI_COMMON_STATUS, 1);
}

void driver_kick(Driver *d, unsigned queue) {
        bar_put(d->device, VIRTIO_BAR_NOTIFY + queue * VIRTIO_NOTIFY_STRIDE, 2, queue);
}

static int on_step(LoopSource *source, int fd, uint32_t events, void *userdata) {
        Stepper *s = userdata;

        /* The loop stops at once when told to, so tell it in the round after a whole one. */
        if (s->entered)
                loop_exit(s->loop, 0);
        s->entered = !s->entered;
        return 0;
}

void stepper_init(Stepper *s) {
        /* Always readable, so that no round ever waits. */
        s->fd = eventfd(1, EFD_CLOEXEC|EFD_NONBLOCK);
        if (s->fd < 0 || loop_new(&s->loop) < 0 || loop_add_fd(s->loop, s->fd, EPOLLIN, on_step, s, &s->source) < 0)
                abort();
}

void stepper_done(Stepper *s) {
        s->source = loop_remove(s->source);
        s->loop = loop_free(s->loop);
        s->fd = safe_close(s->fd);
}

void stepper_run(Stepper *s, unsigned rounds) {
        for (unsigned i = 0; i < rounds; i++)
                if (loop_run(s->loop) < 0)
                        abort();
}
