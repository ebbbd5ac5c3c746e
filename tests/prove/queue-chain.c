/* SPDX-License-Identifier: Apache-2.0 */

/* P5: what a chain comes to: all of it in RAM, no part empty, and totals that are the sums of its parts. For chains of any
 * number of parts that follows from queue-part.c, since a chain begins with none and gets them one by one.
 * Bounds: queues of 1, 2, 4 and 8 entries in any state; room for 2 parts and indirect tables of 2 in place of 256. */

#define VIRT_CHAIN_PARTS_MAX 2U

#include "any-queue.h"

static void on_access(Access access, uint64_t gpa, const void *data) {
}

static uint64_t bytes_of(const VirtPart *parts, unsigned n) {
        uint64_t bytes = 0;

        for (unsigned i = 0; i < n; i++)
                bytes += parts[i].len;
        return bytes;
}

PROOF_OF_SIZES(a_chain_is_the_sum_of_its_parts, 8) {
        VirtQueue q = any_queue();
        VirtChain c;

        if (virtqueue_pop(&q, &c) != 1)
                return;

        unsigned n = (unsigned) c.n_readable + c.n_writable;
        prove(n <= VIRT_CHAIN_PARTS_MAX);
        prove(c.readable_bytes == bytes_of(c.parts, c.n_readable));
        prove(c.writable_bytes == bytes_of(c.parts + c.n_readable, c.n_writable));
        if (n == 0)
                return;
        unsigned k = (unsigned) any_below(n);
        prove(c.parts[k].len > 0 && is_ram(c.parts[k].gpa, c.parts[k].len));
}
