/* SPDX-License-Identifier: Apache-2.0 */

/* P4: a configuration is taken only if its size is a power of two within the limit and its three parts are aligned
 * and wholly in RAM; a queue starts with a copy of it, empty; a stopped queue touches nothing.
 * Bounds: none. Sizes up to VIRTQUEUE_SIZE_MAX, any addresses. */

#include "any-queue.h"

static unsigned n_accesses;

static void on_access(Access access, uint64_t gpa, const void *data) {
        n_accesses++;
}

static VirtQueueConfig any_config(void) {
        return (VirtQueueConfig) {
                .size = any_u16(), .desc_gpa = any_u64(), .avail_gpa = any_u64(), .used_gpa = any_u64(),
        };
}

PROOF(config_is_good_or_refused, 1) {
        VirtQueueConfig c = any_config();
        uint16_t max = any_u16();

        any_ram();
        bool power = c.size == 1 || c.size == 2 || c.size == 4 || c.size == 8 || c.size == 16 || c.size == 32 ||
                     c.size == 64 || c.size == 128 || c.size == 256;
        bool good = power && c.size <= max && (c.desc_gpa & 15) == 0 && (c.avail_gpa & 1) == 0 &&
                    (c.used_gpa & 3) == 0 && is_ram(c.desc_gpa, 16 * c.size) && is_ram(c.avail_gpa, 2 * c.size + 6) &&
                    is_ram(c.used_gpa, 8 * c.size + 6);

        prove(virtqueue_config_check(&c, max, &no_regions) == (good ? 0 : -EINVAL));
        prove(n_accesses == 0);
}

PROOF_OF_SIZES(a_queue_starts_empty_with_its_own_copy, 1) {
        VirtQueue q;
        VirtQueueConfig c = any_config(), copy = c;
        VirtQueueOptions o = { .event_idx = any_bool(), .indirect = any_bool(), .chain_bytes_max = any_u32() };

        any_ram();
        assume(c.size == QUEUE_SIZE && virtqueue_config_check(&c, QUEUE_SIZE, &no_regions) == 0);
        virtqueue_start(&q, &no_regions, &c, &o);
        c = any_config();

        VirtQueue expected = { .mem = &no_regions, .started = true, .config = copy, .options = o };
        prove(queue_holds(&q) && config_same(&q, &expected));
        prove(!q.fault && q.avail_next == 0 && q.used_next == 0 && q.in_flight[0] == 0);
}

PROOF(a_queue_that_is_not_started_is_quiet, 1) {
        VirtQueue q = any_queue();
        VirtChain c;

        assume(c.head < QUEUE_SIZE);
        virtqueue_stop(&q);
        prove(virtqueue_pop(&q, &c) == 0);
        virtqueue_unpop(&q, &c);
        virtqueue_push(&q, &c, 0);
        prove(!virtqueue_should_signal(&q) && !virtqueue_rearm(&q) && n_accesses == 0);
}
