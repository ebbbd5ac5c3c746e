/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/pci_regs.h>
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>

#include "vmm/snapshot-virtio.h"

/* Structs are stored as they lie in memory: without holes. */
static_assert(sizeof(MsixEntry) == 16, "layout of a stored MSI-X entry");
static_assert(sizeof(QueueState) == 40 + VIRTQUEUE_SIZE_MAX / 8, "layout of a stored queue");
static_assert(sizeof(VirtioState) == 56 + VIRTIO_CONFIG_BYTES_MAX + MSIX_VECTORS_MAX * sizeof(MsixEntry) +
              VIRTIO_QUEUES_MAX * sizeof(QueueState), "layout of a stored device");

/* PCI */

void snapshot_pci_save(PciFunction *f, unsigned slot, SnapshotWriter *w) {
        PciState s = {};

        assert(f);

        pthread_mutex_lock(&f->lock);
        memcpy(s.config, f->config, sizeof(s.config));
        s.bar_sizing = f->bar_sizing;
        pthread_mutex_unlock(&f->lock);

        snapshot_writer_begin(w, SNAPSHOT_SECTION_PCI, slot);
        snapshot_writer_put(w, &s, sizeof(s));
}

int snapshot_pci_parse(const PciFunction *f, SnapshotReader *r, PciState *ret, ErrorText *e) {
        assert(f);
        assert(ret);

        int k = snapshot_read(r, ret, sizeof(*ret), e);
        if (k >= 0)
                k = snapshot_read_end(r, e);
        if (k < 0)
                return k;

        if (ret->bar_sizing > 1 || ret->reserved != 0)
                return snapshot_bad(r, e, "malformed");
        for (unsigned i = 0; i < sizeof(ret->config); i++)
                if ((ret->config[i] ^ f->config[i]) & ~f->writable[i])
                        return snapshot_bad(r, e, "a different device, as byte 0x%x of its configuration says", i);
        return 0;
}

void snapshot_pci_apply(PciFunction *f, const PciState *s) {
        assert(f);
        assert(s);

        pthread_mutex_lock(&f->lock);
        memcpy(f->config, s->config, sizeof(f->config));
        f->bar_sizing = s->bar_sizing;
        pthread_mutex_unlock(&f->lock);
}

/* Saving */

static void save_queue(const VirtioPci *v, unsigned i, QueueState *ret) {
        const VirtioQueueRegs *q = &v->regs.queues[i];
        const VirtQueue *ring = &v->queues[i].ring;

        *ret = (QueueState) {
                .desc_gpa = q->config.desc_gpa,
                .avail_gpa = q->config.avail_gpa,
                .used_gpa = q->config.used_gpa,
                .size = q->config.size,
                .vector = q->vector,
                .enabled = q->enabled,
                .avail_next = ring->avail_next,
                .used_next = ring->used_next,
                .used_signalled = ring->used_signalled,
        };
        memcpy(ret->in_flight, ring->in_flight, sizeof(ret->in_flight));
}

static void save_msix(Msix *x, VirtioState *s) {
        pthread_mutex_lock(&x->lock);
        s->n_vectors = (uint16_t) x->n_vectors;
        s->msix_pending = x->pending;
        memcpy(s->msix, x->entries, sizeof(s->msix));
        pthread_mutex_unlock(&x->lock);
}

void snapshot_virtio_save(VirtioPci *v, unsigned slot, SnapshotWriter *w) {
        const VirtioRegs *regs = &v->regs;
        VirtioState s;

        assert(v);

        pthread_mutex_lock(&v->pci.lock);
        memset(&s, 0, sizeof(s));
        s.type = v->kind.type;
        s.n_queues = regs->n_queues;
        s.device_features = regs->device_features;
        s.driver_features = regs->driver_features;
        s.device_feature_select = regs->device_feature_select;
        s.driver_feature_select = regs->driver_feature_select;
        s.config_vector = regs->config_vector;
        s.queue_select = regs->queue_select;
        s.status = regs->status;
        s.config_generation = regs->config_generation;
        s.isr = atomic_load(&v->isr);
        s.live = v->live;
        s.failed = v->failed;
        s.config_changed = v->config_changed;
        s.config_bytes = (uint32_t) v->config_bytes;
        memcpy(s.config, v->config, v->config_bytes);
        for (unsigned i = 0; i < regs->n_queues; i++)
                save_queue(v, i, &s.queues[i]);
        pthread_mutex_unlock(&v->pci.lock);
        save_msix(&v->msix, &s);

        snapshot_writer_begin(w, SNAPSHOT_SECTION_VIRTIO, slot);
        snapshot_writer_put(w, &s, sizeof(s));
}

/* Checking */

static int check_identity(const VirtioPci *v, const SnapshotReader *r, const VirtioState *s, ErrorText *e) {
        if (s->type != v->kind.type || s->n_queues != v->regs.n_queues || s->n_vectors != v->msix.n_vectors)
                return snapshot_bad(r, e, "a different device than %s", v->kind.name);
        if (s->device_features != v->regs.device_features)
                return snapshot_bad(r, e, "%s with features 0x%llx, not 0x%llx", v->kind.name,
                                    (unsigned long long) s->device_features,
                                    (unsigned long long) v->regs.device_features);
        if (s->config_bytes != v->config_bytes)
                return snapshot_bad(r, e, "a configuration of %u bytes", s->config_bytes);
        if (s->live > 1 || s->failed > 1 || s->config_changed > 1)
                return snapshot_bad(r, e, "malformed");
        return 0;
}

static int check_msix(const VirtioPci *v, const SnapshotReader *r, const VirtioState *s, ErrorText *e) {
        if (s->msix_pending >> v->msix.n_vectors)
                return snapshot_bad(r, e, "interrupts without a vector");
        for (unsigned i = 0; i < v->msix.n_vectors; i++)
                if ((s->msix[i].address & 3) || (s->msix[i].control & ~(uint32_t) PCI_MSIX_ENTRY_CTRL_MASKBIT))
                        return snapshot_bad(r, e, "a malformed interrupt vector");
        return 0;
}

/* Writes of a driver, on a copy of the registers. */
typedef struct Replay {
        VirtioRegs regs;
        const GuestMem *mem;
} Replay;

static void replay(Replay *p, unsigned offset, unsigned len, uint64_t value) {
        (void) virtio_regs_write(&p->regs, p->mem, offset, len, value);
}

static void replay_features(Replay *p, uint64_t features) {
        for (unsigned i = 0; i < 2 && features != 0; i++) {
                replay(p, VIRTIO_PCI_COMMON_GFSELECT, 4, i);
                replay(p, VIRTIO_PCI_COMMON_GF, 4, (uint32_t) (features >> (32 * i)));
        }
}

/* Only what differs from the state after a reset, since a driver may not have come that far. */
static void replay_queue(Replay *p, unsigned i, const QueueState *q) {
        const VirtioQueueRegs *fresh = &p->regs.queues[i];

        replay(p, VIRTIO_PCI_COMMON_Q_SELECT, 2, i);
        if (q->size != fresh->config.size)
                replay(p, VIRTIO_PCI_COMMON_Q_SIZE, 2, q->size);
        if (q->desc_gpa != 0)
                replay(p, VIRTIO_PCI_COMMON_Q_DESCLO, 8, q->desc_gpa);
        if (q->avail_gpa != 0)
                replay(p, VIRTIO_PCI_COMMON_Q_AVAILLO, 8, q->avail_gpa);
        if (q->used_gpa != 0)
                replay(p, VIRTIO_PCI_COMMON_Q_USEDLO, 8, q->used_gpa);
        if (q->vector != VIRTIO_NO_VECTOR)
                replay(p, VIRTIO_PCI_COMMON_Q_MSIX, 2, q->vector);
        if (q->enabled)
                replay(p, VIRTIO_PCI_COMMON_Q_ENABLE, 2, q->enabled);
}

static void replay_all(Replay *p, const VirtioState *s) {
        static const uint8_t steps[] = { VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER,
                                         VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_DRIVER_OK,
                                         VIRTIO_CONFIG_S_FAILED };
        uint8_t status = 0;

        if (s->config_vector != VIRTIO_NO_VECTOR)
                replay(p, VIRTIO_PCI_COMMON_MSIX, 2, s->config_vector);
        for (unsigned i = 0; i < ELEMENTSOF(steps); i++) {
                if (steps[i] == VIRTIO_CONFIG_S_FEATURES_OK)
                        replay_features(p, s->driver_features);
                if (steps[i] == VIRTIO_CONFIG_S_DRIVER_OK)
                        for (unsigned k = 0; k < s->n_queues; k++)
                                replay_queue(p, k, &s->queues[k]);
                if (!(s->status & steps[i]))
                        continue;
                status |= steps[i];
                replay(p, VIRTIO_PCI_COMMON_STATUS, 1, status);
        }
        if (s->status & VIRTIO_CONFIG_S_NEEDS_RESET)
                (void) virtio_regs_set_needs_reset(&p->regs);

        replay(p, VIRTIO_PCI_COMMON_DFSELECT, 4, s->device_feature_select);
        replay(p, VIRTIO_PCI_COMMON_GFSELECT, 4, s->driver_feature_select);
        replay(p, VIRTIO_PCI_COMMON_Q_SELECT, 2, s->queue_select);
        p->regs.config_generation = s->config_generation;
}

static bool queue_same(const VirtioQueueRegs *q, const QueueState *s) {
        return q->config.size == s->size && q->config.desc_gpa == s->desc_gpa && q->config.avail_gpa == s->avail_gpa &&
               q->config.used_gpa == s->used_gpa && q->vector == s->vector && q->enabled == s->enabled;
}

static int check_regs(const VirtioPci *v, const SnapshotReader *r, const VirtioState *s, VirtioRegs *ret,
                      ErrorText *e) {
        Replay p = { .regs = v->regs, .mem = &v->vm->mem };

        virtio_regs_reset(&p.regs);
        uint64_t rejected = p.regs.rejected;
        replay_all(&p, s);

        if (p.regs.rejected != rejected || p.regs.status != s->status || p.regs.resetting ||
            p.regs.driver_features != s->driver_features || p.regs.config_vector != s->config_vector)
                return snapshot_bad(r, e, "registers of %s that no driver could have written", v->kind.name);
        for (unsigned i = 0; i < s->n_queues; i++)
                if (!queue_same(&p.regs.queues[i], &s->queues[i]))
                        return snapshot_bad(r, e, "queue %u of %s that no driver could have set up", i, v->kind.name);

        bool up = s->status & VIRTIO_CONFIG_S_DRIVER_OK;
        if (s->live != (up && !s->failed) || (s->failed && !(s->status & VIRTIO_CONFIG_S_NEEDS_RESET)))
                return snapshot_bad(r, e, "%s neither runs nor stands", v->kind.name);
        *ret = p.regs;
        return 0;
}

/* What is in flight is what was taken and not given back. */
static bool indices_ok(const QueueState *q, bool live) {
        unsigned n = 0;

        for (unsigned i = 0; i < VIRTQUEUE_SIZE_MAX; i++)
                if (q->in_flight[i / 64] & (1ULL << (i % 64))) {
                        if (i >= q->size)
                                return false;
                        n++;
                }
        if (!live || !q->enabled)
                return n == 0 && q->avail_next == 0 && q->used_next == 0 && q->used_signalled == 0;
        return n == (uint16_t) (q->avail_next - q->used_next);
}

int snapshot_virtio_parse(const VirtioPci *v, SnapshotReader *r, VirtioLoad *ret, ErrorText *e) {
        const VirtioState *s = &ret->state;

        assert(v);
        assert(ret);

        int k = snapshot_read(r, &ret->state, sizeof(ret->state), e);
        if (k >= 0)
                k = snapshot_read_end(r, e);
        if (k >= 0)
                k = check_identity(v, r, s, e);
        if (k >= 0)
                k = check_msix(v, r, s, e);
        if (k >= 0)
                k = check_regs(v, r, s, &ret->regs, e);
        if (k < 0)
                return k;

        for (unsigned i = 0; i < s->n_queues; i++)
                if (!indices_ok(&s->queues[i], s->live))
                        return snapshot_bad(r, e, "indices of queue %u of %s", i, v->kind.name);
        return 0;
}

/* Applying */

static void apply_queue(VirtioPci *v, unsigned i, const QueueState *s) {
        VirtQueue *ring = &v->queues[i].ring;

        virtqueue_stop(ring);
        if (!v->live || !s->enabled)
                return;
        virtio_pci_start_queue(v, i);
        ring->avail_next = ring->avail_seen = s->avail_next;
        ring->used_next = s->used_next;
        ring->used_signalled = s->used_signalled;
        memcpy(ring->in_flight, s->in_flight, sizeof(ring->in_flight));
}

static void apply_msix(VirtioPci *v, const VirtioState *s) {
        uint16_t control = (uint16_t) pci_get(&v->pci, v->msix_capability + PCI_MSIX_FLAGS, 2);
        Msix *x = &v->msix;

        pthread_mutex_lock(&x->lock);
        x->enabled = control & PCI_MSIX_FLAGS_ENABLE;
        x->masked = control & PCI_MSIX_FLAGS_MASKALL;
        x->pending = s->msix_pending;
        memcpy(x->entries, s->msix, sizeof(x->entries));
        pthread_mutex_unlock(&x->lock);
}

void snapshot_virtio_apply(VirtioPci *v, const VirtioLoad *l) {
        const VirtioState *s = &l->state;

        assert(v);
        assert(l);

        pthread_mutex_lock(&v->pci.lock);
        v->regs = l->regs;
        v->start_requested = false;
        v->live = s->live;
        v->failed = s->failed;
        atomic_store(&v->isr, s->isr);
        /* A disk may have grown meanwhile, for example. */
        bool differs = memcmp(v->config, s->config, v->config_bytes) != 0;
        if (differs)
                v->regs.config_generation++;
        v->config_changed = differs || s->config_changed;
        for (unsigned i = 0; i < s->n_queues; i++)
                apply_queue(v, i, &s->queues[i]);
        pthread_mutex_unlock(&v->pci.lock);
        apply_msix(v, s);
}
