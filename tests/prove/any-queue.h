/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Any queue of QUEUE_SIZE entries that has been started, and at any point of its life: every state
 * that queue_holds() is true of. A new queue is one (queue-config.c), one from a snapshot is one
 * (snapshot-queue.c), and pop, unpop and push keep it true (queue-pop.c, queue-push.c): so what they show of one call holds
 * for any number of them. */

#include "hostile-memory.h"
#include "vmm/virtqueue.c"

#ifndef QUEUE_SIZE
#define QUEUE_SIZE 8U
#endif

static GuestMem no_regions;

/* What was taken and not given back is what is in flight (P7), and the driver is no further ahead than
 * the queue is long (P6). */
static bool queue_holds(const VirtQueue *q) {
        uint16_t n = (uint16_t) __builtin_popcountll(q->in_flight[0]);

        return q->started && q->mem == &no_regions && q->config.size == QUEUE_SIZE &&
               virtqueue_config_check(&q->config, QUEUE_SIZE, q->mem) == 0 &&
               q->in_flight[0] >> QUEUE_SIZE == 0 && q->in_flight[1] == 0 && q->in_flight[2] == 0 &&
               q->in_flight[3] == 0 && n == (uint16_t) (q->avail_next - q->used_next) &&
               (q->fault || (uint16_t) (q->avail_seen - q->avail_next) <= QUEUE_SIZE);
}

static VirtQueue any_queue(void) {
        VirtQueue q;

        any_ram();
        q.mem = &no_regions;
        q.config.size = QUEUE_SIZE;
        q.started = true;
        q.fault = any_bool() ? "broken before" : NULL;
        assume(q.options.chain_bytes_max <= UINT32_MAX);
        assume(queue_holds(&q));
        return q;
}

/* The configuration that was checked is the one that is used, until the queue is stopped (P4). */
static bool config_same(const VirtQueue *a, const VirtQueue *b) {
        return a->mem == b->mem && a->started == b->started && a->config.size == b->config.size &&
               a->config.desc_gpa == b->config.desc_gpa && a->config.avail_gpa == b->config.avail_gpa &&
               a->config.used_gpa == b->config.used_gpa && a->options.event_idx == b->options.event_idx &&
               a->options.indirect == b->options.indirect && a->options.chain_bytes_max == b->options.chain_bytes_max;
}
