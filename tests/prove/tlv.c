/* SPDX-License-Identifier: Apache-2.0 */

/* The reader of records, which control messages and the agent's consist of: each record lies wholly in
 * the buffer, the reader moves on by at least a header each time, and what doesn't fit is refused.
 * Bounds: buffers of up to 32 bytes with any contents; lengths in them are of 32 bits. */

#include "prove.h"
#include "base/tlv.c"

#define BYTES 32U

PROOF(a_record_lies_in_the_buffer, 1) {
        size_t size = (size_t) any_below(BYTES + 1);
        uint8_t *data = malloc(size);
        assume(data);
        TlvReader r = { .data = data, .size = size, .offset = (size_t) any_below(BYTES + 1) };
        assume(r.offset <= r.size);
        size_t before = r.offset;
        Tlv t;

        int k = tlv_next(&r, &t);
        prove(k == 1 || k == 0 || k == -EBADMSG);
        prove(r.offset <= r.size);
        if (k == 1) {
                prove(r.offset >= before + TLV_HEADER + t.len && r.offset - before <= TLV_HEADER + t.len + 7ULL);
                prove(t.data == data + before + TLV_HEADER && __CPROVER_r_ok(t.data, t.len));
        } else
                prove(r.offset == before);
        prove((k == 0) == (before == size));
}

PROOF(a_number_has_its_own_length, 8) {
        uint8_t data[8];
        Tlv t = { .len = any_u32(), .data = data };
        uint32_t small;
        uint64_t big;

        prove((tlv_get_u32(&t, &small) == 0) == (t.len == 4));
        prove((tlv_get_u64(&t, &big) == 0) == (t.len == 8));
}
