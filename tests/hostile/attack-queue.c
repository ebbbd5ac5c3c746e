/* SPDX-License-Identifier: Apache-2.0 */
/* Rings and descriptors that break the rules of virtio 1.2, 2.7, one rule at a time, for each queue of each device. */

#include "hostile.h"

#define MMIO_BARS 0xc0000000ULL
#define MMIO_ECAM 0xe0000000ULL
#define MMIO_APIC 0xfee00000ULL
#define RING_SIZE_USED 16U
/* A part that is as long as memory allows, with this much of it left out on either side. */
#define MARGIN (1U << 20)

typedef struct Spoil {
        uint64_t features;
        uint16_t size;
        /* The good chain has n descriptors, from 0 on; to be spoilt, and offered. */
        void (*spoil)(Ring *ring, unsigned n);
} Spoil;

static Desc *table(void) {
        return (Desc *) data[8];
}

/* The chain moves into an indirect table, which descriptor 0 names. */
static void make_indirect(Ring *ring, unsigned n) {
        memcpy(table(), ring->desc, n * sizeof(Desc));
        ring->desc[0] = (Desc) { .addr = (uint64_t) table(), .len = n * (uint32_t) sizeof(Desc), .flags = DESC_INDIRECT };
}

static void spoil_head(Ring *ring, unsigned n) {
        ring_offer(ring, ring->size);
}

static void spoil_last_head(Ring *ring, unsigned n) {
        ring_offer(ring, 0xffff);
}

static void spoil_index(Ring *ring, unsigned n) {
        ring->avail[1] = (uint16_t) (ring->avail[1] + ring->size + 1);
}

static void spoil_index_back(Ring *ring, unsigned n) {
        ring->avail[1] = (uint16_t) (ring->avail[1] - 1);
}

static void spoil_next(Ring *ring, unsigned n) {
        ring->desc[n - 1].flags |= DESC_NEXT;
        ring->desc[n - 1].next = ring->size;
        ring_offer(ring, 0);
}

static void spoil_last_next(Ring *ring, unsigned n) {
        ring->desc[n - 1].flags |= DESC_NEXT;
        ring->desc[n - 1].next = 0xffff;
        ring_offer(ring, 0);
}

static void spoil_circle(Ring *ring, unsigned n) {
        ring->desc[n - 1].flags |= DESC_NEXT;
        ring->desc[n - 1].next = (uint16_t) (n - 1);
        ring_offer(ring, 0);
}

/* Of parts without length, which say nothing about their order. */
static void spoil_empty_circle(Ring *ring, unsigned n) {
        for (unsigned i = 0; i < ring->size; i++)
                ring->desc[i] = (Desc) { .flags = DESC_NEXT | (ring->desc[0].flags & DESC_WRITE),
                                         .next = (uint16_t) ((i + 1U) % ring->size) };
        ring_offer(ring, 0);
}

static void place(Ring *ring, unsigned n, uint64_t addr, uint32_t len) {
        ring->desc[n - 1].addr = addr;
        ring->desc[n - 1].len = len;
        ring_offer(ring, 0);
}

static void spoil_over_the_end(Ring *ring, unsigned n) {
        place(ring, n, memory_end() - 4, 8);
}

static void spoil_behind_the_end(Ring *ring, unsigned n) {
        place(ring, n, memory_end(), 64);
}

static void spoil_in_bars(Ring *ring, unsigned n) {
        place(ring, n, MMIO_BARS + (1U << 20), 64);
}

static void spoil_in_ecam(Ring *ring, unsigned n) {
        place(ring, n, MMIO_ECAM, 64);
}

static void spoil_in_apic(Ring *ring, unsigned n) {
        place(ring, n, MMIO_APIC, 64);
}

static void spoil_far_away(Ring *ring, unsigned n) {
        place(ring, n, 1ULL << 52, 64);
}

static void spoil_wrap(Ring *ring, unsigned n) {
        place(ring, n, UINT64_MAX - 63, 128);
}

static void spoil_wrap_to_zero(Ring *ring, unsigned n) {
        place(ring, n, UINT64_MAX - 63, 64);
}

static void spoil_huge(Ring *ring, unsigned n) {
        place(ring, n, (uint64_t) data[0], UINT32_MAX);
}

/* Each part is memory, but all together are more than any device takes. */
static void spoil_long(Ring *ring, unsigned n) {
        uint32_t len = (uint32_t) memory_end() - 2 * MARGIN;
        uint16_t direction = ring->desc[n - 1].flags & DESC_WRITE;

        for (unsigned i = 0; i < ring->size; i++)
                ring->desc[i] = (Desc) { .addr = MARGIN, .len = len,
                                         .flags = direction | (i + 1U < ring->size ? DESC_NEXT : 0),
                                         .next = (uint16_t) (i + 1) };
        ring_offer(ring, 0);
}

static void spoil_order(Ring *ring, unsigned n) {
        ring->desc[0] = (Desc) { .addr = (uint64_t) data[9], .len = 64, .flags = DESC_WRITE | DESC_NEXT, .next = 1 };
        ring->desc[1] = (Desc) { .addr = (uint64_t) data[10], .len = 64 };
        ring_offer(ring, 0);
}

static void spoil_indirect_unasked(Ring *ring, unsigned n) {
        make_indirect(ring, n);
        ring_offer(ring, 0);
}

static void offer_table(Ring *ring, unsigned n, uint32_t len) {
        make_indirect(ring, n);
        ring->desc[0].len = len;
        ring_offer(ring, 0);
}

static void spoil_odd_table(Ring *ring, unsigned n) {
        offer_table(ring, n, n * (uint32_t) sizeof(Desc) + 8);
}

static void spoil_empty_table(Ring *ring, unsigned n) {
        offer_table(ring, n, 0);
}

static void spoil_long_table(Ring *ring, unsigned n) {
        offer_table(ring, n, 257 * sizeof(Desc));
}

static void spoil_endless_table(Ring *ring, unsigned n) {
        offer_table(ring, n, UINT32_MAX & ~15U);
}

static void spoil_table_place(Ring *ring, unsigned n, uint64_t addr) {
        make_indirect(ring, n);
        ring->desc[0].addr = addr;
        ring_offer(ring, 0);
}

static void spoil_table_over_the_end(Ring *ring, unsigned n) {
        spoil_table_place(ring, n, memory_end() - 8);
}

static void spoil_table_in_bars(Ring *ring, unsigned n) {
        spoil_table_place(ring, n, MMIO_BARS + (1U << 20));
}

static void spoil_table_wraps(Ring *ring, unsigned n) {
        spoil_table_place(ring, n, UINT64_MAX - 7);
}

static void spoil_table_and_next(Ring *ring, unsigned n) {
        make_indirect(ring, n);
        ring->desc[0].flags |= DESC_NEXT;
        ring->desc[0].next = 1;
        ring_offer(ring, 0);
}

static void spoil_table_in_a_table(Ring *ring, unsigned n) {
        make_indirect(ring, n);
        table()[0] = ring->desc[0];
        ring_offer(ring, 0);
}

static void spoil_table_next(Ring *ring, unsigned n) {
        make_indirect(ring, n);
        table()[n - 1].flags |= DESC_NEXT;
        table()[n - 1].next = (uint16_t) n;
        ring_offer(ring, 0);
}

static void spoil_table_circle(Ring *ring, unsigned n) {
        make_indirect(ring, n);
        table()[n - 1].flags |= DESC_NEXT;
        table()[n - 1].next = (uint16_t) (n - 1);
        ring_offer(ring, 0);
}

static bool open_for(Raw *r, const Target *t, const Spoil *s) {
        if (raw_open(r, t, s->features, s->size ? s->size : RING_SIZE_USED))
                return true;
        say(t->name, -1, "does not start");
        return false;
}

static void spoil_queue(const Target *t, unsigned queue, const Spoil *s) {
        uint32_t len;
        Raw r;

        if (!open_for(&r, t, s) || !raw_queue_is_read(&r, queue))
                return;

        Ring *ring = &r.rings[queue];
        s->spoil(ring, raw_good_chain(&r, queue));
        ring_kick(ring);
        raw_provoke(&r, queue);
        Outcome o = raw_wait(&r, ring, &len);
        /* It stays as it is, whatever is offered. */
        if (o == OUTCOME_STOPPED && (ring_kick(ring), ring->used[1] != 0))
                say(t->name, (int) queue, "works although it has stopped");
        else
                say(t->name, (int) queue, outcome_name(o));
}

static void spoil_all(const Spoil *s) {
        for (unsigned i = 0; i < n_targets; i++)
                for (unsigned q = 0; q < targets[i].n_queues; q++)
                        spoil_queue(&targets[i], q, s);
}

#define SPOIL(what, ...)                                                             \
        static void attack_##what(void) {                                            \
                static const Spoil s = { .spoil = spoil_##what, __VA_ARGS__ };       \
                spoil_all(&s);                                                       \
        }

SPOIL(head)
SPOIL(last_head)
SPOIL(index)
SPOIL(index_back)
SPOIL(next)
SPOIL(last_next)
SPOIL(circle)
SPOIL(empty_circle)
SPOIL(over_the_end)
SPOIL(behind_the_end)
SPOIL(in_bars)
SPOIL(in_ecam)
SPOIL(in_apic)
SPOIL(far_away)
SPOIL(wrap)
SPOIL(wrap_to_zero)
SPOIL(huge)
SPOIL(long, .size = RAW_SIZE_MAX)
SPOIL(order)
SPOIL(indirect_unasked)
SPOIL(odd_table, .features = FEATURE_INDIRECT)
SPOIL(empty_table, .features = FEATURE_INDIRECT)
SPOIL(long_table, .features = FEATURE_INDIRECT)
SPOIL(endless_table, .features = FEATURE_INDIRECT)
SPOIL(table_over_the_end, .features = FEATURE_INDIRECT)
SPOIL(table_in_bars, .features = FEATURE_INDIRECT)
SPOIL(table_wraps, .features = FEATURE_INDIRECT)
SPOIL(table_and_next, .features = FEATURE_INDIRECT)
SPOIL(table_in_a_table, .features = FEATURE_INDIRECT)
SPOIL(table_next, .features = FEATURE_INDIRECT)
SPOIL(table_circle, .features = FEATURE_INDIRECT)

const Attack queue_attacks[] = {
        { "head", attack_head },
        { "last-head", attack_last_head },
        { "index", attack_index },
        { "index-back", attack_index_back },
        { "next", attack_next },
        { "last-next", attack_last_next },
        { "circle", attack_circle },
        { "empty-circle", attack_empty_circle },
        { "over-the-end", attack_over_the_end },
        { "behind-the-end", attack_behind_the_end },
        { "in-bars", attack_in_bars },
        { "in-ecam", attack_in_ecam },
        { "in-apic", attack_in_apic },
        { "far-away", attack_far_away },
        { "wrap", attack_wrap },
        { "wrap-to-zero", attack_wrap_to_zero },
        { "huge", attack_huge },
        { "long", attack_long },
        { "order", attack_order },
        { "indirect-unasked", attack_indirect_unasked },
        { "odd-table", attack_odd_table },
        { "empty-table", attack_empty_table },
        { "long-table", attack_long_table },
        { "endless-table", attack_endless_table },
        { "table-over-the-end", attack_table_over_the_end },
        { "table-in-bars", attack_table_in_bars },
        { "table-wraps", attack_table_wraps },
        { "table-and-next", attack_table_and_next },
        { "table-in-a-table", attack_table_in_a_table },
        { "table-next", attack_table_next },
        { "table-circle", attack_table_circle },
        {},
};
