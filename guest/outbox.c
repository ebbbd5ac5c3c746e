/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/outbox.h"

void outbox_done(Outbox *o) {
        free(o->data);
        *o = (Outbox) {};
}

static uint8_t *outbox_extend(Outbox *o, size_t n) {
        if (o->offset > 0 && o->offset == o->size)
                o->offset = o->size = 0;

        if (o->offset > 0 && o->size + n > o->allocated) {
                memmove(o->data, o->data + o->offset, outbox_size(o));
                o->size -= o->offset;
                o->offset = 0;
        }
        if (o->size + n > o->allocated) {
                uint8_t *p = realloc(o->data, o->size + n);
                if (!p)
                        return NULL;
                o->data = p;
                o->allocated = o->size + n;
        }

        uint8_t *at = o->data + o->size;
        o->size += n;
        return at;
}

int outbox_put(Outbox *o, const void *data, size_t size) {
        uint8_t *at = outbox_extend(o, size);
        if (!at)
                return -ENOMEM;
        memcpy(at, data, size);
        return 0;
}

int outbox_put_frame(Outbox *o, uint16_t type, uint16_t flags, uint32_t id, const void *body, size_t size) {
        uint8_t *at = outbox_extend(o, FRAME_HEADER_SIZE + size);
        if (!at)
                return -ENOMEM;

        frame_header_put(
                &(FrameHeader) { .len = (uint32_t) size, .type = type, .flags = flags, .id = id }, at);
        if (size > 0)
                memcpy(at + FRAME_HEADER_SIZE, body, size);
        return 0;
}

int outbox_flush(Outbox *o, int fd) {
        while (outbox_size(o) > 0) {
                ssize_t n = write(fd, o->data + o->offset, outbox_size(o));
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return errno == EAGAIN ? 0 : -errno;
                }
                o->offset += (size_t) n;
        }
        outbox_done(o);
        return 1;
}
