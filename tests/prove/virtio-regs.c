/* SPDX-License-Identifier: Apache-2.0 */

/* P4: whatever a driver writes into a device's registers, in whatever order: a queue is enabled only with a
 * configuration that was checked, and from then on it doesn't change; behind DRIVER_OK nothing does but what only a
 * reset takes back; a reset leads to the initial state from every other.
 * regs_hold() is true of a fresh device and stays true over any one write: so it holds for any number of them.
 * Bounds: none. Any state, offset, width and value. */

#include "prove.h"
#include "vmm/virtio-regs.c"

static GuestMem no_regions;

/* Any check that says the same of the same configuration: queue-config.c shows what the real one says. */
bool __CPROVER_uninterpreted_good(uint16_t size, uint64_t desc, uint64_t avail, uint64_t used, uint16_t size_max);

int virtqueue_config_check(const VirtQueueConfig *c, uint16_t size_max, const GuestMem *m) {
        return __CPROVER_uninterpreted_good(c->size, c->desc_gpa, c->avail_gpa, c->used_gpa, size_max) ? 0 : -EINVAL;
}

#define UP VIRTIO_CONFIG_S_DRIVER_OK

static bool implies(uint8_t status, uint8_t bit, uint8_t other) {
        return !(status & bit) || (status & other);
}

static bool vector_ok(const VirtioRegs *r, uint16_t v) {
        return v < r->n_vectors || v == VIRTIO_NO_VECTOR;
}

static bool queue_ok(const VirtioRegs *r, const VirtioQueueRegs *q) {
        return vector_ok(r, q->vector) &&
               (!q->enabled || ((r->status & VIRTIO_CONFIG_S_FEATURES_OK) &&
                                virtqueue_config_check(&q->config, r->queue_size_max, &no_regions) == 0));
}

static bool regs_hold(const VirtioRegs *r) {
        for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
                if (i < r->n_queues && !queue_ok(r, &r->queues[i]))
                        return false;
        return r->n_queues <= VIRTIO_QUEUES_MAX && r->queue_size_max <= VIRTQUEUE_SIZE_MAX &&
               vector_ok(r, r->config_vector) && !(r->status & ~(STATUS_KNOWN | VIRTIO_CONFIG_S_NEEDS_RESET)) &&
               implies(r->status, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_ACKNOWLEDGE) &&
               implies(r->status, VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_DRIVER) &&
               implies(r->status, UP, VIRTIO_CONFIG_S_FEATURES_OK) &&
               (!(r->status & VIRTIO_CONFIG_S_FEATURES_OK) || features_acceptable(r));
}

static VirtioRegs any_regs(void) {
        VirtioRegs r;

        r.rejected = any_u32();
        assume(regs_hold(&r));
        return r;
}

static bool config_same(const VirtioQueueRegs *a, const VirtioQueueRegs *b) {
        return a->config.size == b->config.size && a->config.desc_gpa == b->config.desc_gpa &&
               a->config.avail_gpa == b->config.avail_gpa && a->config.used_gpa == b->config.used_gpa;
}

static bool fixed_same(const VirtioRegs *a, const VirtioRegs *b) {
        return a->device_features == b->device_features && a->n_queues == b->n_queues &&
               a->queue_size_max == b->queue_size_max && a->n_vectors == b->n_vectors;
}

PROOF(a_write_keeps_what_was_checked, 5) {
        VirtioRegs r = any_regs(), before = r;
        unsigned offset = any_u32(), len = any_u32();
        unsigned i = (unsigned) any_below(VIRTIO_QUEUES_MAX);

        VirtioAction action = virtio_regs_write(&r, &no_regions, offset, len, any_u64());
        prove(regs_hold(&r) && fixed_same(&r, &before));

        const VirtioQueueRegs *q = &r.queues[i], *was = &before.queues[i];
        if (was->enabled)
                prove(q->enabled && config_same(q, was));
        if ((before.status & UP) || before.resetting) {
                prove(q->enabled == was->enabled && config_same(q, was) && q->vector == was->vector);
                prove(r.driver_features == before.driver_features && r.config_vector == before.config_vector);
        }

        /* Nobody but a reset takes a bit of the status back, and a reset is asked for once. */
        prove((r.status & before.status) == before.status);
        prove(!before.resetting || (r.resetting && r.status == before.status && action == VIRTIO_ACTION_NONE));
        prove((action == VIRTIO_ACTION_RESET) == (r.resetting && !before.resetting));
        /* Started once, and never a broken device. */
        prove((action == VIRTIO_ACTION_START) == ((r.status & UP) && !(before.status & UP)));
        if (action == VIRTIO_ACTION_START)
                prove(!(r.status & (VIRTIO_CONFIG_S_NEEDS_RESET | VIRTIO_CONFIG_S_FAILED)) && !r.resetting);
        if (action == VIRTIO_ACTION_BAD_QUEUE)
                prove((r.status & VIRTIO_CONFIG_S_NEEDS_RESET) && !r.queues[r.queue_select].enabled);
}

PROOF(a_late_write_is_counted, 5) {
        VirtioRegs r = any_regs(), before = r;
        unsigned offset = any_u32(), len = any_u32();

        assume(before.status & UP);
        assume(offset != VIRTIO_PCI_COMMON_DFSELECT && offset != VIRTIO_PCI_COMMON_GFSELECT &&
               offset != VIRTIO_PCI_COMMON_Q_SELECT && offset != VIRTIO_PCI_COMMON_STATUS);
        prove(virtio_regs_write(&r, &no_regions, offset, len, any_u64()) == VIRTIO_ACTION_NONE);
        prove(r.rejected == before.rejected + 1);
        prove(r.queue_select == before.queue_select && r.status == before.status && !r.resetting == !before.resetting);
}

PROOF(a_reset_leads_to_the_initial_state, 5) {
        VirtioRegs r = any_regs(), fresh;
        unsigned i = (unsigned) any_below(VIRTIO_QUEUES_MAX);

        virtio_regs_init(&fresh, r.device_features, r.n_queues, r.queue_size_max, r.n_vectors);
        virtio_regs_reset(&r);
        prove(regs_hold(&r) && fixed_same(&r, &fresh));
        prove(r.status == 0 && fresh.status == 0 && !r.resetting && r.driver_features == 0);
        prove(r.device_feature_select == 0 && r.driver_feature_select == 0 && r.queue_select == 0);
        prove(r.config_vector == VIRTIO_NO_VECTOR && !r.queues[i].enabled);
        if (i < r.n_queues)
                prove(config_same(&r.queues[i], &fresh.queues[i]) && r.queues[i].config.desc_gpa == 0 &&
                      r.queues[i].config.size == r.queue_size_max && r.queues[i].vector == VIRTIO_NO_VECTOR);
}

PROOF(a_read_stays_in_the_registers, 5) {
        VirtioRegs r = any_regs();
        unsigned offset = any_u32(), len = any_u32();

        assume(len > 0);
        uint64_t v = virtio_regs_read(&r, offset, len);
        prove(access_ok(offset, len) || v == UINT64_MAX);
        prove(!access_ok(offset, len) || (offset < VIRTIO_REGS_BYTES && len <= VIRTIO_REGS_BYTES - offset));
}
