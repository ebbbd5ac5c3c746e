/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A client's connection to an HttpServer, which owns it: one request at a time, and its answer.
 *
 * When the head of a request is whole the server's begin() gives the connection a handler, or answers at once. A handler
 * without body() gets the whole body in c->body, up to the server's limit. The answer is written with the functions of
 * http-reply.h, at any time from begin() on, and what follows of the request is dropped once it is. Nobody but the
 * connection's own run() frees it: others mark it (http_conn_break()) and wake it. */

#include "guest/http-parser.h"
#include "guest/list.h"
#include "guest/loop.h"
#include "guest/outbox.h"

typedef struct HttpConn HttpConn;
typedef struct HttpServer HttpServer;

typedef struct HttpHandler {
        /* A part of the body. NULL: gathered in c->body. */
        void (*body)(HttpConn *c, const uint8_t *data, size_t size);
        /* The whole request has come. */
        void (*complete)(HttpConn *c);
        /* All that was answered so far has left, and the answer has not ended: more is wanted. NULL: it comes by itself. */
        void (*writable)(HttpConn *c);
        /* Whether a client that has closed its direction is gone, and not waiting for the rest. */
        bool gone;
        /* Whether as much time may pass between two parts of the body as between two requests. */
        bool patient;
        /* The request is over, in whatever way. */
        void (*done)(HttpConn *c);
} HttpHandler;

struct HttpConn {
        LIST_FIELDS(HttpConn);
        HttpServer *server;
        int fd;
        LoopSource source, timer;
        HttpParser parser;
        uint8_t *waiting;       /* came behind the request that is being answered */
        size_t n_waiting;
        Outbox out;

        const HttpHandler *handler;
        void *state;
        uint8_t *body;          /* a NUL is behind it */
        size_t n_body, body_allocated;

        bool cors;              /* a page of another origin asks */
        bool reply_begun, reply_ended, reply_chunked, reply_headless;
        bool close;             /* after this answer */
        bool closing;           /* our direction is closed, what still comes is dropped */
        bool broken;            /* cut it */
        bool stuck;             /* the client does not take what it is sent */
        bool paused;            /* no more of the body is read */
};

int http_conn_new(HttpServer *s, int fd);
void http_conn_free(HttpConn *c);
void http_conn_set_handler(HttpConn *c, const HttpHandler *handler, void *state);
/* Makes the loop run it soon. */
void http_conn_wake(HttpConn *c);
/* Whether more of the request's body is read: its client has to wait meanwhile, without a time-out. */
void http_conn_pause(HttpConn *c, bool paused);
/* Resets it, so that the client sees that its answer is not whole. */
void http_conn_break(HttpConn *c);

static inline const HttpRequest *http_request(const HttpConn *c) {
        return &c->parser.request;
}
