/* SPDX-License-Identifier: Apache-2.0 */

/* Taking a chain from a queue whose guest changes its memory between any two loads.
 * P2: what was judged is what is used, since a second load would give another value.
 * P5: head and next lie in the table, a chain has no more steps than its tables have entries and no more parts
 * than there is room for, one level of indirection, a total that is bounded; queue-part.c has each part, queue-chain.c what
 * all of them come to.
 * P6: an index that is too far ahead breaks the queue, and a broken one stays quiet; one call, one chain.
 * P7: a head that is in flight is not taken again.
 * Bounds: queues of 1, 2, 4 and 8 entries in any state; room for 8 parts and indirect tables of 8 in place of 256. */

#define VIRT_CHAIN_PARTS_MAX 8U

#include "any-queue.h"

static VirtQueueConfig rings;
static bool indirect;             /* descriptors may lie elsewhere */
static struct {
        unsigned n_loads, n_reads, n_tables, n_changes;
        bool index_loaded, fenced;
} seen;

static void on_access(Access access, uint64_t gpa, const void *data) {
        if (access == ACCESS_FENCE) {
                seen.fenced = true;
                return;
        }
        if (access == ACCESS_WRITE || access == ACCESS_STORE)
                seen.n_changes++;

        if (access == ACCESS_LOAD) {
                seen.n_loads++;
                prove(gpa >= rings.avail_gpa && gpa - rings.avail_gpa < 4 + 2 * QUEUE_SIZE);
                if (gpa == rings.avail_gpa + 2) {
                        prove(!seen.index_loaded && seen.n_reads == 0);
                        seen.index_loaded = true;
                        seen.fenced = false;
                        return;
                }
        }
        /* The entry and the descriptors come behind the index that published them. */
        prove(!seen.index_loaded || seen.fenced);
        if (access == ACCESS_READ) {
                prove((indirect && seen.n_reads > 0) || gpa - rings.desc_gpa <= 16 * (QUEUE_SIZE - 1));
                seen.n_reads++;
                seen.n_tables += ((const Descriptor *) data)->flags & VRING_DESC_F_INDIRECT ? 1 : 0;
        }
}

PROOF_OF_SIZES(a_chain_is_whole_or_the_queue_is_broken, 8) {
        VirtQueue q = any_queue(), before = q;
        VirtChain c;

        rings = q.config;
        indirect = q.options.indirect;
        int r = virtqueue_pop(&q, &c);

        prove(queue_holds(&q) && config_same(&q, &before));
        prove(q.used_next == before.used_next && q.used_signalled == before.used_signalled);
        prove(seen.n_changes == 0 && seen.n_loads <= 2 && seen.n_reads <= QUEUE_SIZE + VIRT_CHAIN_PARTS_MAX);

        if (r == 1) {
                prove(!before.fault && !q.fault);
                prove(c.head < QUEUE_SIZE && !in_flight(&before, c.head));
                prove(q.in_flight[0] == (before.in_flight[0] | 1ULL << c.head));
                prove(q.avail_next == (uint16_t) (before.avail_next + 1));
                prove((uint16_t) (q.avail_seen - before.avail_next) <= QUEUE_SIZE && seen.n_tables <= 1);
                prove((unsigned) c.n_readable + c.n_writable <= VIRT_CHAIN_PARTS_MAX);
                prove(c.readable_bytes + c.writable_bytes <= q.options.chain_bytes_max);
                return;
        }
        prove(r == (q.fault ? -EBADMSG : 0));
        prove(q.avail_next == before.avail_next && q.in_flight[0] == before.in_flight[0]);
        prove(r == 0 ? seen.n_loads == 1 && q.avail_seen == q.avail_next && seen.n_reads == 0 : true);
        prove(!before.fault || seen.n_loads + seen.n_reads == 0);
}

PROOF_OF_SIZES(a_pop_taken_back_never_was, 4) {
        VirtQueue q = any_queue(), before = q;
        VirtChain c;

        rings = q.config;
        assume(!q.fault && c.head < QUEUE_SIZE && q.avail_next != q.used_next);
        /* the last one popped: the driver has not gone further than a whole queue */
        assume((uint16_t) (q.avail_seen - q.avail_next) < QUEUE_SIZE);
        virtqueue_unpop(&q, &c);

        bool was = in_flight(&before, c.head);
        prove(queue_holds(&q) && config_same(&q, &before) && !in_flight(&q, c.head));
        prove(q.avail_next == (uint16_t) (before.avail_next - was));
        prove(seen.n_loads + seen.n_reads + seen.n_changes == 0);
}
