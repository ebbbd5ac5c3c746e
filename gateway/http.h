/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The HTTP server: libmicrohttpd on sd-event, without a thread of its own, on one socket that was passed in.
 *
 * It bounds what a client can take: connections, the size of a body and of all bodies together, and the time of each
 * phase, whatever drips in meanwhile: until the first line of a first and of a later request, for the whole of a request,
 * for taking the answer. Who waits for cubed has no such end. A request that could mean two things to two readers (a
 * length given twice, or beside chunks) is refused and its connection closed. */

#include <systemd/sd-event.h>

#include "gateway/request.h"

typedef struct HttpLimits {
        size_t body_max;             /* of a request that is kept */
        size_t bodies_max;           /* of all together */
        size_t discard_max;          /* read and thrown away of one that is refused; then it is cut off */
        unsigned connections_max;
        uint64_t first_usec;         /* from connecting to the first line */
        uint64_t keepalive_usec;     /* from an answer to the next first line, for who has a key; else first_usec */
        uint64_t request_usec;       /* from there to the end of the body; and for the answer */
        uint64_t upload_usec;        /* for a body that is an upload, of which something comes every request_usec */
} HttpLimits;

typedef struct HttpHandlers {
        /* The headers are there. What is answered here has its body thrown away. */
        void (*begin)(Request *r, void *userdata);
        /* All of it is there. Answers now or later. */
        void (*handle)(Request *r, void *userdata);
        /* Its status is known. */
        void (*answered)(Request *r, void *userdata);
        /* It is answered, later than it came: true keeps the answer until request_release(). */
        bool (*hold)(Request *r, void *userdata);
        /* Answered, and about to be freed. */
        void (*done)(Request *r, void *userdata);
} HttpHandlers;

/* Takes listen_fd. */
int http_server_new(sd_event *event, int listen_fd, const HttpLimits *limits, const HttpHandlers *handlers,
                    void *userdata, HttpServer **ret);
/* Answers what is open with 503 first. */
HttpServer *http_server_free(HttpServer *s);
DEFINE_CLEANUP(HttpServer *, http_server_free)
unsigned http_server_n_connections(const HttpServer *s);
