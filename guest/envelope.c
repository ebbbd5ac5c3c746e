/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "guest/envelope.h"

#define FIRST_SIZE 4096U

void envelopes_done(Envelopes *e) {
        free(e->data);
        *e = (Envelopes) {};
}

int envelopes_put(Envelopes *e, const uint8_t *data, size_t size) {
        if (e->offset > 0) {
                memmove(e->data, e->data + e->offset, envelopes_left(e));
                e->size -= e->offset;
                e->offset = 0;
        }
        if (e->size + size > e->allocated) {
                size_t allocated = MAX(MAX(e->allocated * 2, e->size + size), (size_t) FIRST_SIZE);
                uint8_t *p = realloc(e->data, allocated);
                if (!p)
                        return -ENOMEM;
                e->data = p;
                e->allocated = allocated;
        }
        memcpy(e->data + e->size, data, size);
        e->size += size;
        return 0;
}

int envelopes_next(Envelopes *e, const uint8_t **ret, size_t *ret_size) {
        const uint8_t *at = e->data + e->offset;
        uint32_t length;

        if (envelopes_left(e) < ENVELOPE_SIZE)
                return 0;
        if (at[0] != 0)
                return -EBADMSG;
        memcpy(&length, at + 1, sizeof(length));
        size_t size = be32toh(length);
        if (size > e->message_max)
                return -EMSGSIZE;
        if (envelopes_left(e) - ENVELOPE_SIZE < size)
                return 0;
        e->offset += ENVELOPE_SIZE + size;
        *ret = at + ENVELOPE_SIZE;
        *ret_size = size;
        return 1;
}
