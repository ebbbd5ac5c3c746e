/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "base/tlv.h"

#define TLV_HEADER 8U

void tlv_writer_done(TlvWriter *w) {
        assert(w);

        free(w->data);
        *w = (TlvWriter) {};
}

static uint8_t *writer_extend(TlvWriter *w, size_t n) {
        if (w->error < 0)
                return NULL;

        if (n > w->max || w->size > w->max - n) {
                w->error = -EMSGSIZE;
                return NULL;
        }

        if (w->size + n > w->allocated) {
                size_t want = MAX(w->size + n, MIN(w->allocated * 2 + 256, w->max));
                uint8_t *p = realloc(w->data, want);

                if (!p) {
                        w->error = -ENOMEM;
                        return NULL;
                }
                w->data = p;
                w->allocated = want;
        }

        uint8_t *at = w->data + w->size;
        w->size += n;
        return at;
}

void tlv_put(TlvWriter *w, uint16_t tag, const void *data, size_t len) {
        assert(w);
        assert(data || len == 0);

        if (len > UINT32_MAX - TLV_HEADER) {
                w->error = w->error < 0 ? w->error : -EMSGSIZE;
                return;
        }

        size_t padded = ALIGN_UP(len, (size_t) 8);
        uint8_t *at = writer_extend(w, TLV_HEADER + padded);
        if (!at)
                return;

        uint16_t t = htole16(tag);
        uint32_t l = htole32((uint32_t) len);
        memset(at, 0, TLV_HEADER);
        memcpy(at, &t, sizeof(t));
        memcpy(at + 4, &l, sizeof(l));
        if (len > 0)
                memcpy(at + TLV_HEADER, data, len);
        memset(at + TLV_HEADER + len, 0, padded - len);
}

void tlv_put_u32(TlvWriter *w, uint16_t tag, uint32_t v) {
        v = htole32(v);
        tlv_put(w, tag, &v, sizeof(v));
}

void tlv_put_u64(TlvWriter *w, uint16_t tag, uint64_t v) {
        v = htole64(v);
        tlv_put(w, tag, &v, sizeof(v));
}

void tlv_put_str(TlvWriter *w, uint16_t tag, const char *s) {
        assert(s);
        tlv_put(w, tag, s, strlen(s));
}

int tlv_writer_finish(const TlvWriter *w) {
        assert(w);
        return w->error;
}

int tlv_next(TlvReader *r, Tlv *ret) {
        uint16_t tag, reserved;
        uint32_t len;

        assert(r);
        assert(ret);

        if (r->offset == r->size)
                return 0;
        if (r->size - r->offset < TLV_HEADER)
                return -EBADMSG;

        const uint8_t *at = r->data + r->offset;
        memcpy(&tag, at, sizeof(tag));
        memcpy(&reserved, at + 2, sizeof(reserved));
        memcpy(&len, at + 4, sizeof(len));
        len = le32toh(len);

        size_t room = r->size - r->offset - TLV_HEADER;
        if (reserved != 0 || ALIGN_UP((uint64_t) len, 8) > room)
                return -EBADMSG;

        *ret = (Tlv) { .tag = le16toh(tag), .len = len, .data = at + TLV_HEADER };
        r->offset += TLV_HEADER + ALIGN_UP((size_t) len, 8);
        return 1;
}

int tlv_get_struct(const Tlv *t, void *ret, size_t size) {
        assert(t);
        assert(ret);

        if (t->len != size)
                return -EBADMSG;
        memcpy(ret, t->data, size);
        return 0;
}

int tlv_get_u32(const Tlv *t, uint32_t *ret) {
        int r = tlv_get_struct(t, ret, sizeof(*ret));
        if (r < 0)
                return r;
        *ret = le32toh(*ret);
        return 0;
}

int tlv_get_u64(const Tlv *t, uint64_t *ret) {
        int r = tlv_get_struct(t, ret, sizeof(*ret));
        if (r < 0)
                return r;
        *ret = le64toh(*ret);
        return 0;
}

int tlv_get_str(const Tlv *t, char **ret) {
        assert(t);
        assert(ret);

        if (t->len > 0 && memchr(t->data, 0, t->len))
                return -EBADMSG;

        char *s = strndup((const char *) t->data, t->len);
        if (!s)
                return -ENOMEM;
        *ret = s;
        return 0;
}
