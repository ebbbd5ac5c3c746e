/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One request of HTTP/1.1 after the other, as they come in on a connection: llhttp decides what is one, this bounds and
 * keeps its head. Embedded in the connection.
 *
 * http_parser_feed() stops at the end of each request, so that the bytes behind it wait; http_parser_next() forgets that
 * request and goes on. All that comes is hostile: of a head no more than HTTP_HEAD_MAX bytes and HTTP_FIELDS_MAX fields are
 * kept, a body is never kept. */

#include <llhttp.h>

#include "base/macros.h"

#define HTTP_HEAD_MAX (32U * 1024U)
#define HTTP_FIELDS_MAX 64U

typedef struct HttpRequest {
        char *text;             /* target, then names and values of fields, each with a NUL behind it */
        size_t size, allocated;
        uint32_t names[HTTP_FIELDS_MAX], values[HTTP_FIELDS_MAX];
        unsigned n_fields;
        uint8_t method;         /* llhttp_method */
        bool begun;             /* something of it has come */
        bool head;              /* its head is whole */
        bool complete;
        bool keep_alive;
        bool http_10;
        uint64_t length;        /* of its body, UINT64_MAX when only its end will tell */
} HttpRequest;

typedef struct HttpParser {
        llhttp_t llhttp;
        HttpRequest request;
        int error;
        void (*on_head)(void *userdata);
        void (*on_body)(void *userdata, const uint8_t *data, size_t size);
        void *userdata;
} HttpParser;

void http_parser_init(
        HttpParser *p, void (*on_head)(void *userdata),
        void (*on_body)(void *userdata, const uint8_t *data, size_t size), void *userdata);
void http_parser_done(HttpParser *p);
/* Bytes taken, fewer than size only at the end of a request. -EBADMSG: no HTTP; -EMSGSIZE: a head beyond the bounds;
 * -ENOMEM. */
ssize_t http_parser_feed(HttpParser *p, const uint8_t *data, size_t size);
void http_parser_next(HttpParser *p);

/* NULL when there is no such field; the first of several. */
const char *http_field(const HttpRequest *q, const char *name);
/* Whether the target's path is this one, to the letter. */
bool http_path_is(const HttpRequest *q, const char *path);
/* Decodes one parameter of the query into ret, NULL when it is not there. -EBADMSG for an escape that is none or a NUL. */
int http_query(const HttpRequest *q, const char *name, char **ret);
