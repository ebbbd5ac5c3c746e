/* SPDX-License-Identifier: Apache-2.0 */

/* P16: a queue that a snapshot may bring is in a state that a queue can be in, so that what is shown of queues
 * (any-queue.h) holds for it too.
 * Bounds: queues of 1, 2, 4 and 8 entries, anything else in the file's record. */

#include "any-queue.h"
#include "vmm/snapshot-virtio.c"

static void on_access(Access access, uint64_t gpa, const void *data) {
        prove(!"loading touches no memory");
}

PROOF_OF_SIZES(indices_of_a_snapshot_are_those_of_a_queue, 256) {
        QueueState s;
        VirtQueueConfig c = { .size = QUEUE_SIZE, .desc_gpa = s.desc_gpa, .avail_gpa = s.avail_gpa, .used_gpa = s.used_gpa };
        VirtQueueOptions o = { .chain_bytes_max = any_u32() };
        VirtQueue q;

        any_ram();
        s.size = QUEUE_SIZE;
        assume(virtqueue_config_check(&c, QUEUE_SIZE, &no_regions) == 0);
        if (!s.enabled || !indices_ok(&s, true))
                return;

        virtqueue_start(&q, &no_regions, &c, &o);
        q.avail_next = q.avail_seen = s.avail_next;
        q.used_next = s.used_next;
        q.used_signalled = s.used_signalled;
        memcpy(q.in_flight, s.in_flight, sizeof(q.in_flight));
        prove(queue_holds(&q));
}
