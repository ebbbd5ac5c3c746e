/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Bodies of type multipart/form-data (RFC 7578) as they come in: the begin, the bytes and the end of each part. Nothing of a
 * part but its head is kept, and of that no more than MULTIPART_HEAD_MAX bytes. */

#include "base/macros.h"

#define MULTIPART_BOUNDARY_MAX 200U
#define MULTIPART_HEAD_MAX 16384U

typedef struct MultipartEvents {
        /* filename is NULL when the part has none; both are as they were sent. What is negative ends the parser. */
        int (*begin)(void *userdata, const char *name, const char *filename);
        int (*data)(void *userdata, const uint8_t *data, size_t size);
        int (*end)(void *userdata);
} MultipartEvents;

typedef enum MultipartState {
        MULTIPART_PREAMBLE,
        MULTIPART_BOUNDARY,     /* behind one: what kind it is */
        MULTIPART_HEAD,
        MULTIPART_BODY,
        MULTIPART_EPILOGUE,
} MultipartState;

typedef struct Multipart {
        const MultipartEvents *events;
        void *userdata;
        MultipartState state;
        char delimiter[MULTIPART_BOUNDARY_MAX + 5];     /* CRLF, two dashes, the boundary */
        size_t n_delimiter, matched;
        char behind;            /* the last byte of those behind a boundary that say what it is */
        char *head;
        size_t n_head;
} Multipart;

/* content_type: of the whole body. -EINVAL when it names no boundary. */
int multipart_init(Multipart *m, const char *content_type, const MultipartEvents *events, void *userdata);
void multipart_done(Multipart *m);
/* -EBADMSG for what is not multipart, or what an event said. */
int multipart_feed(Multipart *m, const uint8_t *data, size_t size);
/* Whether the last boundary has come. */
static inline bool multipart_complete(const Multipart *m) {
        return m->state == MULTIPART_EPILOGUE;
}
