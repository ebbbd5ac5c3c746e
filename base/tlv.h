/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tag-length-value records: the body of every message between cubed, the VMM and the agent.
 *
 * A record is {u16 tag, u16 reserved = 0, u32 len} in little endian, followed by len bytes and
 * padding to 8. A writer appends into a buffer that it owns and grows, up to a ceiling; the first
 * error sticks and is returned by tlv_writer_finish(). A reader walks a buffer that somebody else
 * owns and trusts nothing in it. */

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

typedef struct TlvWriter {
        uint8_t *data;
        size_t size;      /* bytes used */
        size_t allocated;
        size_t max;       /* ceiling in bytes */
        int error;        /* first error, negative errno */
} TlvWriter;

typedef struct TlvReader {
        const uint8_t *data;
        size_t size;
        size_t offset;
} TlvReader;

typedef struct Tlv {
        uint16_t tag;
        uint32_t len;
        const uint8_t *data; /* borrowed from the reader's buffer */
} Tlv;

#define TLV_WRITER_INIT(ceiling) ((TlvWriter) { .max = (ceiling) })
#define TLV_READER_INIT(d, n) ((TlvReader) { .data = (d), .size = (n) })

void tlv_writer_done(TlvWriter *w);
#define _cleanup_tlv_ _cleanup_(tlv_writer_done)

void tlv_put(TlvWriter *w, uint16_t tag, const void *data, size_t len);
void tlv_put_u32(TlvWriter *w, uint16_t tag, uint32_t v);
void tlv_put_u64(TlvWriter *w, uint16_t tag, uint64_t v);
/* Without the terminating NUL. */
void tlv_put_str(TlvWriter *w, uint16_t tag, const char *s);
/* 0, or the first error: -ENOMEM, -EMSGSIZE when the ceiling was hit. */
int tlv_writer_finish(const TlvWriter *w);

/* 1 and the next record, 0 at the end, -EBADMSG when the buffer is malformed. */
int tlv_next(TlvReader *r, Tlv *ret);
/* -EBADMSG when the length is not that of the type. */
int tlv_get_u32(const Tlv *t, uint32_t *ret);
int tlv_get_u64(const Tlv *t, uint64_t *ret);
/* Copies exactly size bytes. */
int tlv_get_struct(const Tlv *t, void *ret, size_t size);
/* A fresh NUL-terminated copy, owned by the caller. -EBADMSG when it holds a NUL. */
int tlv_get_str(const Tlv *t, char **ret);
