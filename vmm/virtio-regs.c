/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_config.h>
#include <linux/virtio_pci.h>

#include "vmm/virtio-regs.h"

#define STATUS_KNOWN                                                                      \
        (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK | \
         VIRTIO_CONFIG_S_DRIVER_OK | VIRTIO_CONFIG_S_FAILED)

void virtio_regs_init(VirtioRegs *r, uint64_t device_features, uint16_t n_queues, uint16_t queue_size_max,
                      uint16_t n_vectors) {
        assert(r);
        assert(n_queues <= VIRTIO_QUEUES_MAX);
        assert(queue_size_max <= VIRTQUEUE_SIZE_MAX);

        *r = (VirtioRegs) {
                .device_features = device_features,
                .n_queues = n_queues,
                .queue_size_max = queue_size_max,
                .n_vectors = n_vectors,
        };
        virtio_regs_reset(r);
}

void virtio_regs_reset(VirtioRegs *r) {
        assert(r);

        *r = (VirtioRegs) {
                .device_features = r->device_features,
                .n_queues = r->n_queues,
                .queue_size_max = r->queue_size_max,
                .n_vectors = r->n_vectors,
                .config_generation = r->config_generation,
                .config_vector = VIRTIO_NO_VECTOR,
                .rejected = r->rejected,
        };
        for (unsigned i = 0; i < r->n_queues; i++)
                r->queues[i] = (VirtioQueueRegs) {
                        .config.size = r->queue_size_max,
                        .vector = VIRTIO_NO_VECTOR,
                };
}

bool virtio_regs_running(const VirtioRegs *r) {
        assert(r);
        return (r->status & VIRTIO_CONFIG_S_DRIVER_OK) && !r->resetting;
}

bool virtio_regs_has_feature(const VirtioRegs *r, unsigned bit) {
        assert(r);
        assert(bit < 64);
        return r->driver_features & (1ULL << bit);
}

bool virtio_regs_set_needs_reset(VirtioRegs *r) {
        assert(r);
        r->status |= VIRTIO_CONFIG_S_NEEDS_RESET;
        return virtio_regs_running(r);
}

/* The registers that have one fixed width; 0 for offsets where none starts. */
static unsigned register_width(unsigned offset) {
        switch (offset) {
        case VIRTIO_PCI_COMMON_DFSELECT:
        case VIRTIO_PCI_COMMON_DF:
        case VIRTIO_PCI_COMMON_GFSELECT:
        case VIRTIO_PCI_COMMON_GF:
        case VIRTIO_PCI_COMMON_Q_DESCLO:
        case VIRTIO_PCI_COMMON_Q_DESCHI:
        case VIRTIO_PCI_COMMON_Q_AVAILLO:
        case VIRTIO_PCI_COMMON_Q_AVAILHI:
        case VIRTIO_PCI_COMMON_Q_USEDLO:
        case VIRTIO_PCI_COMMON_Q_USEDHI:
                return 4;
        case VIRTIO_PCI_COMMON_MSIX:
        case VIRTIO_PCI_COMMON_NUMQ:
        case VIRTIO_PCI_COMMON_Q_SELECT:
        case VIRTIO_PCI_COMMON_Q_SIZE:
        case VIRTIO_PCI_COMMON_Q_MSIX:
        case VIRTIO_PCI_COMMON_Q_ENABLE:
        case VIRTIO_PCI_COMMON_Q_NOFF:
                return 2;
        case VIRTIO_PCI_COMMON_STATUS:
        case VIRTIO_PCI_COMMON_CFGGENERATION:
                return 1;
        default:
                return 0;
        }
}

/* 4.1.3.1: each field in its own width; the three 64-bit ones also in halves. */
static bool access_ok(unsigned offset, unsigned len) {
        if (len == 8)
                return offset == VIRTIO_PCI_COMMON_Q_DESCLO || offset == VIRTIO_PCI_COMMON_Q_AVAILLO ||
                       offset == VIRTIO_PCI_COMMON_Q_USEDLO;
        return register_width(offset) == len;
}

static uint32_t feature_word(uint64_t features, uint32_t select) {
        return select < 2 ? (uint32_t) (features >> (select * 32)) : 0;
}

/* A queue_select beyond the last queue shows a queue of size 0: "unavailable" (4.1.4.3). */
static const VirtioQueueRegs *selected(const VirtioRegs *r) {
        static const VirtioQueueRegs none = { .vector = VIRTIO_NO_VECTOR };

        return r->queue_select < r->n_queues ? &r->queues[r->queue_select] : &none;
}

static uint64_t half(uint64_t v, bool high, unsigned len) {
        if (len == 8)
                return v;
        return high ? v >> 32 : v & UINT32_MAX;
}

static uint64_t queue_read(const VirtioRegs *r, unsigned offset, unsigned len) {
        const VirtioQueueRegs *q = selected(r);

        switch (offset) {
        case VIRTIO_PCI_COMMON_Q_SIZE:
                return q->config.size;
        case VIRTIO_PCI_COMMON_Q_MSIX:
                return q->vector;
        case VIRTIO_PCI_COMMON_Q_ENABLE:
                return q->enabled;
        case VIRTIO_PCI_COMMON_Q_NOFF:
                return r->queue_select < r->n_queues ? r->queue_select : 0;
        case VIRTIO_PCI_COMMON_Q_DESCLO:
        case VIRTIO_PCI_COMMON_Q_DESCHI:
                return half(q->config.desc_gpa, offset == VIRTIO_PCI_COMMON_Q_DESCHI, len);
        case VIRTIO_PCI_COMMON_Q_AVAILLO:
        case VIRTIO_PCI_COMMON_Q_AVAILHI:
                return half(q->config.avail_gpa, offset == VIRTIO_PCI_COMMON_Q_AVAILHI, len);
        default:
                return half(q->config.used_gpa, offset == VIRTIO_PCI_COMMON_Q_USEDHI, len);
        }
}

uint64_t virtio_regs_read(const VirtioRegs *r, unsigned offset, unsigned len) {
        assert(r);

        if (!access_ok(offset, len))
                return UINT64_MAX;

        switch (offset) {
        case VIRTIO_PCI_COMMON_DFSELECT:
                return r->device_feature_select;
        case VIRTIO_PCI_COMMON_DF:
                return feature_word(r->device_features, r->device_feature_select);
        case VIRTIO_PCI_COMMON_GFSELECT:
                return r->driver_feature_select;
        case VIRTIO_PCI_COMMON_GF:
                return feature_word(r->driver_features, r->driver_feature_select);
        case VIRTIO_PCI_COMMON_MSIX:
                return r->config_vector;
        case VIRTIO_PCI_COMMON_NUMQ:
                return r->n_queues;
        case VIRTIO_PCI_COMMON_STATUS:
                return r->status;
        case VIRTIO_PCI_COMMON_CFGGENERATION:
                return r->config_generation;
        case VIRTIO_PCI_COMMON_Q_SELECT:
                return r->queue_select;
        default:
                return queue_read(r, offset, len);
        }
}

static VirtioAction rejected(VirtioRegs *r) {
        r->rejected++;
        return VIRTIO_ACTION_NONE;
}

static bool features_acceptable(const VirtioRegs *r) {
        return (r->driver_features & ~r->device_features) == 0 &&
               (r->driver_features & (1ULL << VIRTIO_F_VERSION_1));
}

/* 3.1.1: the steps come in order, a bit once set stays, and only 0 takes the driver back. */
static VirtioAction write_status(VirtioRegs *r, uint8_t v) {
        if (v == 0) {
                if (r->resetting)
                        return VIRTIO_ACTION_NONE;
                r->resetting = true;
                return VIRTIO_ACTION_RESET;
        }

        uint8_t old = r->status & STATUS_KNOWN;
        uint8_t fresh = v & STATUS_KNOWN & ~old;
        if (r->resetting || (v & ~(STATUS_KNOWN | VIRTIO_CONFIG_S_NEEDS_RESET)) || (old & ~v))
                return rejected(r);

        if ((fresh & VIRTIO_CONFIG_S_DRIVER) && !(v & VIRTIO_CONFIG_S_ACKNOWLEDGE))
                return rejected(r);
        if ((fresh & VIRTIO_CONFIG_S_FEATURES_OK) && !(old & VIRTIO_CONFIG_S_DRIVER))
                return rejected(r);
        if ((fresh & VIRTIO_CONFIG_S_DRIVER_OK) &&
            (!(old & VIRTIO_CONFIG_S_FEATURES_OK) || (r->status & VIRTIO_CONFIG_S_NEEDS_RESET) ||
             (v & VIRTIO_CONFIG_S_FAILED)))
                return rejected(r);

        /* The driver reads the bit back to learn whether its choice was accepted. */
        if ((fresh & VIRTIO_CONFIG_S_FEATURES_OK) && !features_acceptable(r)) {
                r->rejected++;
                fresh &= ~VIRTIO_CONFIG_S_FEATURES_OK;
        }

        r->status |= fresh;
        return fresh & VIRTIO_CONFIG_S_DRIVER_OK ? VIRTIO_ACTION_START : VIRTIO_ACTION_NONE;
}

/* Between DRIVER and FEATURES_OK. */
static VirtioAction write_driver_features(VirtioRegs *r, uint32_t v) {
        if (r->resetting || !(r->status & VIRTIO_CONFIG_S_DRIVER) || (r->status & VIRTIO_CONFIG_S_FEATURES_OK) ||
            r->driver_feature_select >= 2)
                return rejected(r);

        unsigned shift = r->driver_feature_select * 32;
        r->driver_features &= ~((uint64_t) UINT32_MAX << shift);
        r->driver_features |= (uint64_t) v << shift;
        return VIRTIO_ACTION_NONE;
}

/* Between FEATURES_OK and DRIVER_OK. */
static bool queues_open(const VirtioRegs *r) {
        return (r->status & (VIRTIO_CONFIG_S_FEATURES_OK | VIRTIO_CONFIG_S_DRIVER_OK | VIRTIO_CONFIG_S_NEEDS_RESET)) ==
                       VIRTIO_CONFIG_S_FEATURES_OK &&
               !r->resetting;
}

/* 4.1.5.1.2.1: what can't be had reads back as NO_VECTOR. */
static uint16_t valid_vector(const VirtioRegs *r, uint64_t v) {
        return v < r->n_vectors ? (uint16_t) v : VIRTIO_NO_VECTOR;
}

static VirtioAction enable_queue(VirtioRegs *r, const GuestMem *m, VirtioQueueRegs *q, uint64_t v) {
        /* 4.1.4.3.2: a driver writes nothing but 1. */
        if (v != 1)
                return rejected(r);

        if (virtqueue_config_check(&q->config, r->queue_size_max, m) < 0) {
                r->rejected++;
                r->status |= VIRTIO_CONFIG_S_NEEDS_RESET;
                return VIRTIO_ACTION_BAD_QUEUE;
        }

        q->enabled = true;
        return VIRTIO_ACTION_NONE;
}

static void set_half(uint64_t *field, bool high, unsigned len, uint64_t v) {
        if (len == 8)
                *field = v;
        else if (high)
                *field = (*field & UINT32_MAX) | v << 32;
        else
                *field = (*field & ~(uint64_t) UINT32_MAX) | (v & UINT32_MAX);
}

static VirtioAction write_queue(VirtioRegs *r, const GuestMem *m, unsigned offset, unsigned len, uint64_t v) {
        if (!queues_open(r) || r->queue_select >= r->n_queues)
                return rejected(r);

        VirtioQueueRegs *q = &r->queues[r->queue_select];
        if (offset == VIRTIO_PCI_COMMON_Q_MSIX) {
                q->vector = valid_vector(r, v);
                return VIRTIO_ACTION_NONE;
        }
        if (q->enabled)
                return rejected(r);

        switch (offset) {
        case VIRTIO_PCI_COMMON_Q_SIZE:
                q->config.size = (uint16_t) v;
                return VIRTIO_ACTION_NONE;
        case VIRTIO_PCI_COMMON_Q_ENABLE:
                return enable_queue(r, m, q, v);
        case VIRTIO_PCI_COMMON_Q_DESCLO:
        case VIRTIO_PCI_COMMON_Q_DESCHI:
                set_half(&q->config.desc_gpa, offset == VIRTIO_PCI_COMMON_Q_DESCHI, len, v);
                return VIRTIO_ACTION_NONE;
        case VIRTIO_PCI_COMMON_Q_AVAILLO:
        case VIRTIO_PCI_COMMON_Q_AVAILHI:
                set_half(&q->config.avail_gpa, offset == VIRTIO_PCI_COMMON_Q_AVAILHI, len, v);
                return VIRTIO_ACTION_NONE;
        case VIRTIO_PCI_COMMON_Q_USEDLO:
        case VIRTIO_PCI_COMMON_Q_USEDHI:
                set_half(&q->config.used_gpa, offset == VIRTIO_PCI_COMMON_Q_USEDHI, len, v);
                return VIRTIO_ACTION_NONE;
        default:
                return rejected(r);
        }
}

VirtioAction virtio_regs_write(VirtioRegs *r, const GuestMem *m, unsigned offset, unsigned len, uint64_t value) {
        assert(r);
        assert(m);

        if (!access_ok(offset, len))
                return rejected(r);

        switch (offset) {
        case VIRTIO_PCI_COMMON_DFSELECT:
                r->device_feature_select = (uint32_t) value;
                return VIRTIO_ACTION_NONE;
        case VIRTIO_PCI_COMMON_GFSELECT:
                r->driver_feature_select = (uint32_t) value;
                return VIRTIO_ACTION_NONE;
        case VIRTIO_PCI_COMMON_Q_SELECT:
                r->queue_select = (uint16_t) value;
                return VIRTIO_ACTION_NONE;
        case VIRTIO_PCI_COMMON_GF:
                return write_driver_features(r, (uint32_t) value);
        case VIRTIO_PCI_COMMON_STATUS:
                return write_status(r, (uint8_t) value);
        case VIRTIO_PCI_COMMON_MSIX:
                /* The driver's interrupt for changes; frozen with the rest. */
                if (r->resetting || (r->status & VIRTIO_CONFIG_S_DRIVER_OK))
                        return rejected(r);
                r->config_vector = valid_vector(r, value);
                return VIRTIO_ACTION_NONE;
        default:
                return write_queue(r, m, offset, len, value);
        }
}
