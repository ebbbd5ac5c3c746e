/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Envelopes of the Connect protocol as they come in pieces: a byte of flags, the size of the message as four bytes, big-endian,
 * and the message. */

#include "base/macros.h"

#define ENVELOPE_SIZE 5U

typedef struct Envelopes {
        uint8_t *data;
        size_t size, offset, allocated;
        size_t message_max;
} Envelopes;

void envelopes_done(Envelopes *e);
int envelopes_put(Envelopes *e, const uint8_t *data, size_t size);
/* 1: the next message, which is whole and stays until the next call; 0: there is none yet. -EBADMSG: it has flags, -EMSGSIZE. */
int envelopes_next(Envelopes *e, const uint8_t **ret, size_t *ret_size);
/* What is kept, and was not given out yet. */
static inline size_t envelopes_left(const Envelopes *e) {
        return e->size - e->offset;
}
