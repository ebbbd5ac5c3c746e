/* SPDX-License-Identifier: Apache-2.0 */

/* One descriptor, judged.
 * P5: a part is added once, in RAM, readable parts before writable ones, no more of them than there is room for, and no
 * more bytes than the device allows; an indirect table has whole entries, no more than a chain has parts, and no other
 * behind it.
 * Bounds: room for 16 parts in place of 256; chains with any number of them, tables of any length. */

#define VIRT_CHAIN_PARTS_MAX 16U

#include "any-queue.h"

static void on_access(Access access, uint64_t gpa, const void *data) {
        prove(!"judging a descriptor touches no memory");
}

/* The rest of a queue doesn't matter here. */
static VirtQueue any_limits(void) {
        VirtQueue q = { .mem = &no_regions, .options = { .indirect = any_bool(), .chain_bytes_max = any_u32() } };

        any_ram();
        return q;
}

/* One step from any chain that there can be: what holds of it goes on to hold. */
PROOF(a_part_is_added_once_and_in_order, 4) {
        VirtQueue q = any_limits();
        VirtChain c;
        Descriptor d;
        unsigned n = (unsigned) c.n_readable + c.n_writable;

        assume(n <= VIRT_CHAIN_PARTS_MAX);
        assume(c.readable_bytes <= q.options.chain_bytes_max &&
               c.writable_bytes <= q.options.chain_bytes_max - c.readable_bytes);

        unsigned other = (unsigned) any_below(VIRT_CHAIN_PARTS_MAX);
        VirtPart part = c.parts[other];
        uint16_t n_readable = c.n_readable, n_writable = c.n_writable;
        uint64_t readable = c.readable_bytes, writable = c.writable_bytes;
        bool write = d.flags & VRING_DESC_F_WRITE;
        int r = add_part(&q, &c, &d);

        prove(r == 0 || (r == -EBADMSG && q.fault));
        if (r < 0)
                return;
        prove(write || n_writable == 0);
        prove(c.n_readable == n_readable + (!write && d.len > 0));
        prove(c.n_writable == n_writable + (write && d.len > 0));
        prove(c.readable_bytes == readable + (write ? 0 : d.len));
        prove(c.writable_bytes == writable + (write ? d.len : 0));
        prove(c.n_readable + c.n_writable <= (int) VIRT_CHAIN_PARTS_MAX);
        prove(c.readable_bytes + c.writable_bytes <= q.options.chain_bytes_max);
        prove(other == n || (c.parts[other].gpa == part.gpa && c.parts[other].len == part.len));
        if (d.len > 0)
                prove(c.parts[n].gpa == d.gpa && c.parts[n].len == d.len && is_ram(d.gpa, d.len));
}

PROOF(an_indirect_table_is_whole_and_in_memory, 4) {
        VirtQueue q = any_limits();
        Descriptor d;
        Table t;

        int r = open_indirect(&q, &d, &t);
        prove(r == 0 || (r == -EBADMSG && q.fault));
        if (r < 0)
                return;
        prove(q.options.indirect && !(d.flags & VRING_DESC_F_NEXT));
        prove(t.indirect && t.gpa == d.gpa && t.entries > 0 && t.entries <= VIRT_CHAIN_PARTS_MAX);
        prove(t.entries * 16U == d.len && is_ram(d.gpa, d.len));
}
