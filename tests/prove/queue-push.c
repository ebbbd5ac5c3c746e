/* SPDX-License-Identifier: Apache-2.0 */

/* Giving chains back.
 * P3: the elements go into the used ring's slots in turn, then a fence, then the index that publishes them, once; nothing
 * else of the guest's memory is written. (That the fence orders what the guest's CPU sees is the compiler's and the
 * processor's; see test-virtqueue.c for two threads.)
 * P7: what was not in flight is not given back, nor anything twice.
 * P8: the length in an element is the one that was passed, which is no more than the chain had room for.
 * A broken queue stays quiet (P6).
 * Bounds: queues of 1, 2, 4 and 8 entries in any state, up to 4 chains in one step. */

#include "any-queue.h"

static VirtQueueConfig rings;
#define GIVEN_MAX 4U

static VirtUsed given[GIVEN_MAX];
static size_t n_given;

static struct {
        unsigned n_accesses, n_elements, n_indices, n_events;
        uint64_t in_flight;       /* what the proof says is */
        uint16_t used_next, index, event;
        bool fenced;
} seen;

static bool was_given(uint32_t head, uint32_t written) {
        for (size_t i = 0; i < n_given; i++)
                if (given[i].head == head && given[i].written == written)
                        return true;
        return false;
}

static void on_element(uint64_t gpa, const uint32_t element[2]) {
        prove(gpa == rings.used_gpa + 4 + 8 * (uint64_t) ((uint16_t) (seen.used_next + seen.n_elements) % QUEUE_SIZE));
        prove(was_given(element[0], element[1]));
        prove(element[0] < QUEUE_SIZE && (seen.in_flight & 1ULL << element[0]));
        prove(seen.n_indices == 0);
        seen.in_flight &= ~(1ULL << (element[0] & 63));
        seen.n_elements++;
}

static void on_word(uint64_t gpa, uint16_t v) {
        if (gpa == rings.used_gpa + 2) {
                prove(seen.fenced);
                seen.n_indices++;
                seen.index = v;
        } else {
                prove(gpa == rings.used_gpa + 4 + 8 * QUEUE_SIZE);
                seen.n_events++;
                seen.event = v;
        }
}

static void on_access(Access access, uint64_t gpa, const void *data) {
        if (access == ACCESS_FENCE) {
                seen.fenced = true;
                return;
        }
        seen.n_accesses++;
        if (access == ACCESS_LOAD)
                prove(seen.fenced && gpa >= rings.avail_gpa && gpa - rings.avail_gpa <= 4 + 2 * QUEUE_SIZE);
        else if (access == ACCESS_STORE)
                on_word(gpa, *(const uint16_t *) data);
        else {
                prove(access == ACCESS_WRITE);
                on_element(gpa, data);
                seen.fenced = false;
        }
}

static VirtQueue watched_queue(void) {
        VirtQueue q = any_queue();

        rings = q.config;
        seen.in_flight = q.in_flight[0];
        seen.used_next = q.used_next;
        return q;
}

PROOF_OF_SIZES(chains_are_given_back_once_and_then_published, 4) {
        VirtQueue q = watched_queue(), before = q;

        n_given = (size_t) any_below(GIVEN_MAX + 1);
        for (size_t i = 0; i < GIVEN_MAX; i++)
                given[i] = (VirtUsed) { .head = (uint16_t) any_below(QUEUE_SIZE), .written = any_u32() };
        virtqueue_push_all(&q, given, n_given);

        prove(queue_holds(&q) && config_same(&q, &before) && q.fault == before.fault);
        prove(q.avail_next == before.avail_next && q.avail_seen == before.avail_seen);
        prove(q.in_flight[0] == seen.in_flight);
        prove(q.used_next == (uint16_t) (before.used_next + seen.n_elements));
        if (before.fault)
                prove(seen.n_accesses == 0);
        else
                prove(seen.n_indices == 1 && seen.index == q.used_next && seen.n_events == 0);

        size_t k = (size_t) any_below(GIVEN_MAX);
        if (!before.fault && k < n_given)
                prove(!in_flight(&q, given[k].head));
}

PROOF_OF_SIZES(used_length_is_what_was_written, 2) {
        VirtQueue q = watched_queue();
        VirtChain c;
        uint64_t written = any_u64();

        assume(c.head < QUEUE_SIZE);
        assume(c.writable_bytes <= q.options.chain_bytes_max && written <= c.writable_bytes);
        n_given = 1;
        given[0] = (VirtUsed) { .head = c.head, .written = (uint32_t) written };
        prove(given[0].written == written);

        bool expected = !q.fault && in_flight(&q, c.head);
        virtqueue_push(&q, &c, written);
        prove(seen.n_elements == expected);
}

PROOF_OF_SIZES(signals_and_rearming_write_one_word_at_most, 2) {
        VirtQueue q = watched_queue(), before = q;

        bool rearm = any_bool(), yes = rearm ? virtqueue_rearm(&q) : virtqueue_should_signal(&q);

        prove(queue_holds(&q) && config_same(&q, &before));
        prove(q.avail_next == before.avail_next && q.used_next == before.used_next && q.in_flight[0] == before.in_flight[0]);
        prove(seen.n_elements == 0 && seen.n_indices == 0 && seen.n_accesses <= 2);
        prove(seen.n_events == (rearm && !before.fault && before.options.event_idx));
        prove(seen.n_events == 0 || seen.event == q.avail_next);
        prove(!before.fault || (!yes && seen.n_accesses == 0));
        prove(!yes || rearm || q.used_signalled == q.used_next);
}
