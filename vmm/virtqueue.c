/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_ring.h>

#include "vmm/virtqueue.h"

/* Layout of the two rings, virtio 1.2, 2.7.6 and 2.7.8. */
#define AVAIL_FLAGS 0U
#define AVAIL_IDX 2U
#define AVAIL_RING 4U
#define USED_IDX 2U
#define USED_RING 4U
#define USED_ELEMENT_SIZE 8U
#define DESC_SIZE 16U

typedef struct Descriptor {
        uint64_t gpa;
        uint32_t len;
        uint16_t flags;
        uint16_t next;
} Descriptor;

static_assert(sizeof(Descriptor) == DESC_SIZE, "layout of virtq_desc");

/* Between the guest's CPU and ours: all that was written before is seen before what follows. */
static void full_barrier(void) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static int fail(VirtQueue *q, const char *why) {
        q->fault = why;
        return -EBADMSG;
}

int virtqueue_config_check(const VirtQueueConfig *c, uint16_t size_max, const GuestMem *m) {
        assert(c);
        assert(m);

        uint64_t n = c->size;
        if (n == 0 || n > MIN(size_max, VIRTQUEUE_SIZE_MAX) || (n & (n - 1)) != 0)
                return -EINVAL;

        if (c->desc_gpa % 16 != 0 || c->avail_gpa % 2 != 0 || c->used_gpa % 4 != 0)
                return -EINVAL;

        if (!guest_mem_ptr(m, c->desc_gpa, n * DESC_SIZE) ||
            !guest_mem_ptr(m, c->avail_gpa, AVAIL_RING + n * 2 + 2) ||
            !guest_mem_ptr(m, c->used_gpa, USED_RING + n * USED_ELEMENT_SIZE + 2))
                return -EINVAL;

        return 0;
}

void virtqueue_start(VirtQueue *q, const GuestMem *m, const VirtQueueConfig *config,
                     const VirtQueueOptions *options) {
        assert(q);
        assert(m);
        assert(config);
        assert(options);

        *q = (VirtQueue) {
                .mem = m,
                .config = *config,
                .options = *options,
                .started = true,
        };
}

void virtqueue_stop(VirtQueue *q) {
        assert(q);
        *q = (VirtQueue) {};
}

static bool in_flight(const VirtQueue *q, uint16_t head) {
        return q->in_flight[head / 64] & (1ULL << (head % 64));
}

static void in_flight_set(VirtQueue *q, uint16_t head, bool on) {
        uint64_t bit = 1ULL << (head % 64);

        if (on)
                q->in_flight[head / 64] |= bit;
        else
                q->in_flight[head / 64] &= ~bit;
}

/* How many entries the driver has made available that we did not take yet. */
static int pending(VirtQueue *q) {
        uint16_t n = q->avail_seen - q->avail_next;
        if (n > 0)
                return n;

        if (guest_mem_load_u16(q->mem, q->config.avail_gpa + AVAIL_IDX, &q->avail_seen) < 0)
                return fail(q, "available ring is outside of memory");
        n = q->avail_seen - q->avail_next;
        if (n > q->config.size)
                return fail(q, "available index is more than a queue size ahead");

        /* The entry, its descriptors and its data are read behind the index. */
        full_barrier();
        return n;
}

static int take_head(VirtQueue *q, uint16_t *ret) {
        uint64_t slot = q->avail_next % q->config.size;
        uint16_t head;

        if (guest_mem_load_u16(q->mem, q->config.avail_gpa + AVAIL_RING + slot * 2, &head) < 0)
                return fail(q, "available ring is outside of memory");
        if (head >= q->config.size)
                return fail(q, "chain head is out of range");
        if (in_flight(q, head))
                return fail(q, "chain head is already in flight");

        *ret = head;
        return 0;
}

static int add_part(VirtQueue *q, VirtChain *c, const Descriptor *d) {
        bool writable = d->flags & VRING_DESC_F_WRITE;

        if (!writable && c->n_writable > 0)
                return fail(q, "readable part behind a writable one");
        if (d->len == 0)
                return 0;
        if (c->n_readable + c->n_writable >= (int) VIRT_CHAIN_PARTS_MAX)
                return fail(q, "chain has too many parts");
        if (!guest_mem_ptr(q->mem, d->gpa, d->len))
                return fail(q, "part is outside of memory");

        c->parts[c->n_readable + c->n_writable] = (VirtPart) { .gpa = d->gpa, .len = d->len };
        if (writable) {
                c->n_writable++;
                c->writable_bytes += d->len;
        } else {
                c->n_readable++;
                c->readable_bytes += d->len;
        }

        if (c->readable_bytes + c->writable_bytes > q->options.chain_bytes_max)
                return fail(q, "chain is too long");
        return 0;
}

/* A table of descriptors: the queue's own, or the one an indirect descriptor names. */
typedef struct Table {
        uint64_t gpa;
        uint16_t entries;
        bool indirect;
} Table;

static int open_indirect(VirtQueue *q, const Descriptor *d, Table *ret) {
        if (!q->options.indirect)
                return fail(q, "indirect descriptor, but the feature was not negotiated");
        if (d->flags & VRING_DESC_F_NEXT)
                return fail(q, "indirect descriptor with a next one");
        if (d->len == 0 || d->len % DESC_SIZE != 0 || d->len / DESC_SIZE > VIRT_CHAIN_PARTS_MAX)
                return fail(q, "indirect table of a bad length");
        if (!guest_mem_ptr(q->mem, d->gpa, d->len))
                return fail(q, "indirect table is outside of memory");

        *ret = (Table) { .gpa = d->gpa, .entries = d->len / DESC_SIZE, .indirect = true };
        return 0;
}

/* Follows one table from index on. 1 when an indirect descriptor ended it and *ret_next is to be
 * walked then, 0 at the end of the chain. No more steps than the table has entries, so that a
 * circle ends. */
static int walk_table(VirtQueue *q, VirtChain *c, const Table *t, uint16_t index, Table *ret_next) {
        for (uint16_t steps = 0; steps < t->entries; steps++) {
                Descriptor d;

                if (index >= t->entries)
                        return fail(q, "next descriptor is out of range");
                if (guest_mem_read(q->mem, t->gpa + (uint64_t) index * DESC_SIZE, &d, sizeof(d)) < 0)
                        return fail(q, "descriptor is outside of memory");

                if (d.flags & VRING_DESC_F_INDIRECT) {
                        if (t->indirect)
                                return fail(q, "indirect table inside an indirect table");
                        int r = open_indirect(q, &d, ret_next);
                        return r < 0 ? r : 1;
                }

                int r = add_part(q, c, &d);
                if (r < 0)
                        return r;
                if (!(d.flags & VRING_DESC_F_NEXT))
                        return 0;
                index = d.next;
        }

        return fail(q, "chain is longer than its table");
}

int virtqueue_pop(VirtQueue *q, VirtChain *ret) {
        assert(q);
        assert(ret);

        if (!q->started)
                return 0;
        if (q->fault)
                return -EBADMSG;

        int r = pending(q);
        if (r <= 0)
                return r;

        ret->n_readable = ret->n_writable = 0;
        ret->readable_bytes = ret->writable_bytes = 0;
        r = take_head(q, &ret->head);
        if (r < 0)
                return r;

        Table table = { .gpa = q->config.desc_gpa, .entries = q->config.size }, indirect;
        r = walk_table(q, ret, &table, ret->head, &indirect);
        if (r > 0)
                r = walk_table(q, ret, &indirect, 0, &table);
        if (r < 0)
                return r;

        in_flight_set(q, ret->head, true);
        q->avail_next++;
        return 1;
}

void virtqueue_unpop(VirtQueue *q, const VirtChain *c) {
        assert(q);
        assert(c);

        if (!q->started || q->fault || !in_flight(q, c->head))
                return;
        in_flight_set(q, c->head, false);
        q->avail_next--;
}

/* The element lies behind those that were published and the n before it. */
static int put_used(VirtQueue *q, const VirtUsed *used, uint16_t n) {
        uint32_t element[2] = { used->head, used->written };
        uint64_t slot = (uint16_t) (q->used_next + n) % q->config.size;

        if (guest_mem_write(q->mem, q->config.used_gpa + USED_RING + slot * USED_ELEMENT_SIZE,
                            element, sizeof(element)) < 0)
                return fail(q, "used ring is outside of memory");
        return 0;
}

void virtqueue_push_all(VirtQueue *q, const VirtUsed *used, size_t n) {
        uint16_t done = 0;

        assert(q);
        assert(used);

        if (!q->started || q->fault)
                return;

        for (size_t i = 0; i < n; i++) {
                if (!in_flight(q, used[i].head))
                        continue;
                in_flight_set(q, used[i].head, false);
                if (put_used(q, &used[i], done) < 0)
                        return;
                done++;
        }

        /* P3: data and elements first, then the index that publishes them. */
        full_barrier();
        q->used_next += done;
        (void) guest_mem_store_u16(q->mem, q->config.used_gpa + USED_IDX, q->used_next);
}

void virtqueue_push(VirtQueue *q, const VirtChain *c, uint64_t written) {
        assert(c);
        assert(written <= c->writable_bytes);

        virtqueue_push_all(q, &(VirtUsed) { .head = c->head, .written = (uint32_t) written }, 1);
}

bool virtqueue_should_signal(VirtQueue *q) {
        uint16_t v;

        assert(q);

        if (!q->started || q->fault || q->used_next == q->used_signalled)
                return false;

        uint16_t fresh = q->used_next - q->used_signalled;
        q->used_signalled = q->used_next;

        /* The index above must be out before we look at what the driver asked for; the driver
         * does the same the other way round (2.7.7.1). */
        full_barrier();

        if (q->options.event_idx) {
                uint64_t used_event = q->config.avail_gpa + AVAIL_RING + q->config.size * 2ULL;
                if (guest_mem_load_u16(q->mem, used_event, &v) < 0)
                        return false;
                return (uint16_t) (q->used_next - v - 1) < fresh;
        }

        if (guest_mem_load_u16(q->mem, q->config.avail_gpa + AVAIL_FLAGS, &v) < 0)
                return false;
        return !(v & VRING_AVAIL_F_NO_INTERRUPT);
}

bool virtqueue_rearm(VirtQueue *q) {
        uint16_t v;

        assert(q);

        if (!q->started || q->fault)
                return false;

        if (q->options.event_idx) {
                uint64_t avail_event =
                        q->config.used_gpa + USED_RING + q->config.size * (uint64_t) USED_ELEMENT_SIZE;
                (void) guest_mem_store_u16(q->mem, avail_event, q->avail_next);
        }

        full_barrier();
        if (guest_mem_load_u16(q->mem, q->config.avail_gpa + AVAIL_IDX, &v) < 0)
                return false;
        return v != q->avail_next;
}
