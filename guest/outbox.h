/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Bytes on their way into a non-blocking socket: frames and parts of answers are appended whole, and leave as the peer
 * takes them. It has no ceiling of its own: whoever fills it looks at outbox_size() and stops
 * taking work while the peer does not read. An empty outbox holds no memory. */

#include "base/frame.h"

typedef struct Outbox {
        uint8_t *data;
        size_t size;
        size_t offset;
        size_t allocated;
} Outbox;

void outbox_done(Outbox *o);
static inline size_t outbox_size(const Outbox *o) {
        return o->size - o->offset;
}

int outbox_put(Outbox *o, const void *data, size_t size);
int outbox_put_frame(Outbox *o, uint16_t type, uint16_t flags, uint32_t id, const void *body, size_t size);
/* 1 when all is written, 0 when the socket is full, or a negative errno. */
int outbox_flush(Outbox *o, int fd);
