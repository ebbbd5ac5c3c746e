/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "base/frame.h"

void frame_header_put(const FrameHeader *h, uint8_t ret_bytes[static FRAME_HEADER_SIZE]) {
        uint32_t len = htole32(h->len), id = htole32(h->id);
        uint16_t type = htole16(h->type), flags = htole16(h->flags);

        memcpy(ret_bytes, &len, 4);
        memcpy(ret_bytes + 4, &type, 2);
        memcpy(ret_bytes + 6, &flags, 2);
        memcpy(ret_bytes + 8, &id, 4);
}

void frame_header_get(const uint8_t bytes[static FRAME_HEADER_SIZE], FrameHeader *ret) {
        memcpy(&ret->len, bytes, 4);
        memcpy(&ret->type, bytes + 4, 2);
        memcpy(&ret->flags, bytes + 6, 2);
        memcpy(&ret->id, bytes + 8, 4);

        ret->len = le32toh(ret->len);
        ret->type = le16toh(ret->type);
        ret->flags = le16toh(ret->flags);
        ret->id = le32toh(ret->id);
}

void frame_parser_init(FrameParser *p, size_t max_body) {
        assert(p);
        *p = (FrameParser) { .max_body = max_body };
}

void frame_parser_done(FrameParser *p) {
        assert(p);
        free(p->buffer);
        *p = (FrameParser) { .max_body = p->max_body };
}

size_t frame_parser_missing(const FrameParser *p) {
        FrameHeader h;

        assert(p);

        if (p->size < FRAME_HEADER_SIZE)
                return FRAME_HEADER_SIZE - p->size;

        frame_header_get(p->buffer, &h);
        return FRAME_HEADER_SIZE + (size_t) h.len - p->size;
}

static int parser_reserve(FrameParser *p, size_t want) {
        if (want <= p->allocated)
                return 0;

        size_t size = MAX(want, MIN(p->allocated * 2 + 64, p->max_body + FRAME_HEADER_SIZE));
        uint8_t *b = realloc(p->buffer, size);
        if (!b)
                return -ENOMEM;

        p->buffer = b;
        p->allocated = size;
        return 0;
}

ssize_t frame_parser_feed(FrameParser *p, const void *data, size_t size) {
        FrameHeader h;

        assert(p);
        assert(data || size == 0);

        size_t n = MIN(size, frame_parser_missing(p));
        if (n == 0)
                return 0;

        int r = parser_reserve(p, p->size + n);
        if (r < 0)
                return r;

        bool had_header = p->size >= FRAME_HEADER_SIZE;
        memcpy(p->buffer + p->size, data, n);
        p->size += n;

        if (!had_header && p->size == FRAME_HEADER_SIZE) {
                frame_header_get(p->buffer, &h);
                if (h.len > p->max_body) {
                        /* The stream is out of step from here on; forget the header so that
                         * nothing is computed from it. */
                        p->size = 0;
                        return -EMSGSIZE;
                }
        }

        return (ssize_t) n;
}

int frame_parser_peek(const FrameParser *p, FrameHeader *ret_header, const uint8_t **ret_body) {
        assert(p);
        assert(ret_header);
        assert(ret_body);

        if (p->size < FRAME_HEADER_SIZE || frame_parser_missing(p) > 0)
                return 0;

        frame_header_get(p->buffer, ret_header);
        *ret_body = p->buffer + FRAME_HEADER_SIZE;
        return 1;
}

void frame_parser_next(FrameParser *p) {
        assert(p);

        /* A large frame's memory is not kept for small ones to come. */
        if (p->allocated > 64 * 1024) {
                free(p->buffer);
                p->buffer = NULL;
                p->allocated = 0;
        }
        p->size = 0;
}
