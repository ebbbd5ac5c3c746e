/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A server of HTTP/1.1 on the agent's loop: one listener, and its connections (http-conn.h). Embedded in whoever answers,
 * which decides about a request as soon as its head is whole. */

#include <netinet/in.h>

#include "guest/http-conn.h"
#include "guest/loop.h"

typedef struct HttpLimits {
        uint64_t head_usec;     /* from the first byte of a request until its head is whole */
        uint64_t body_usec;     /* between two parts of a body */
        uint64_t idle_usec;     /* between two requests; clients keep connections for 300 s */
        uint64_t write_usec;    /* for a client to take some of what it is sent */
        unsigned connections;   /* one client may have 200 */
        size_t body_bytes;      /* of a body that is gathered */
} HttpLimits;

#define HTTP_LIMITS_DEFAULT                             \
        ((HttpLimits) {                                 \
                .head_usec = 30 * USEC_PER_SEC,         \
                .body_usec = 120 * USEC_PER_SEC,        \
                .idle_usec = 640 * USEC_PER_SEC,        \
                .write_usec = 640 * USEC_PER_SEC,       \
                .connections = 1024,                    \
                .body_bytes = MIB(4),                   \
        })

struct HttpServer {
        Loop *loop;
        int listen_fd;
        LoopSource source;
        HttpLimits limits;
        HttpConn *conns;        /* newest first */
        unsigned n_conns;
        /* Sets the handler of the connection's request, or answers it. */
        void (*begin)(HttpConn *c, void *userdata);
        /* Whether clients have to wait: nothing more is read from them. NULL: never. http_server_wake() ends it. */
        bool (*held)(void *userdata);
        void *userdata;
};

/* An fd that listens on all of this host's addresses. -EADDRINUSE when somebody else has the port. */
int http_listen(uint16_t port, int *ret_fd);
/* Takes listen_fd, also when it fails. */
int http_server_start(
        HttpServer *s, Loop *l, int listen_fd, const HttpLimits *limits, void (*begin)(HttpConn *c, void *userdata),
        void *userdata);
void http_server_stop(HttpServer *s);
static inline bool http_server_runs(const HttpServer *s) {
        return s->source.loop;
}
void http_server_wake(HttpServer *s);
/* Resets all connections: their clients are gone. */
void http_server_cut(HttpServer *s);
