/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>

#include "guest/http-conn.h"
#include "guest/http-reply.h"
#include "guest/http-server.h"

#define READ_SIZE (64U * 1024U)
#define STEPS_PER_TURN 8U
/* For the client to read an answer that it was not asked to wait for. */
#define CLOSING_USEC (2U * USEC_PER_SEC)
#define BODY_FIRST 4096U

void http_conn_wake(HttpConn *c) {
        (void) loop_rearm(&c->source);
}

void http_conn_break(HttpConn *c) {
        c->broken = true;
        http_conn_wake(c);
}

void http_conn_set_handler(HttpConn *c, const HttpHandler *handler, void *state) {
        assert(!c->handler);
        c->handler = handler;
        c->state = state;
}

static void end_request(HttpConn *c) {
        const HttpHandler *handler = TAKE_PTR(c->handler);

        if (handler && handler->done)
                handler->done(c);
        c->state = NULL;
        free(TAKE_PTR(c->body));
        c->n_body = c->body_allocated = 0;
        c->reply_begun = c->reply_ended = c->reply_chunked = c->reply_headless = c->cors = c->paused = false;
}

void http_conn_free(HttpConn *c) {
        const struct linger reset = { .l_onoff = 1 };

        end_request(c);
        LIST_REMOVE(c->server->conns, c);
        c->server->n_conns--;
        loop_remove(&c->source);
        loop_remove(&c->timer);
        if (c->broken)
                (void) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        safe_close(c->fd);
        http_parser_done(&c->parser);
        outbox_done(&c->out);
        free(c->waiting);
        free(c);
}

static void set_timer(HttpConn *c, uint64_t usec) {
        (void) loop_set_timer(&c->timer, usec);
}

static uint64_t body_usec(const HttpConn *c) {
        const HttpLimits *l = &c->server->limits;

        return c->paused ? UINT64_MAX : c->handler && c->handler->patient ? l->idle_usec : l->body_usec;
}

/* What it waits for next, with nothing left to be sent. */
static void set_phase_timer(HttpConn *c) {
        const HttpLimits *l = &c->server->limits;
        const HttpRequest *q = http_request(c);

        set_timer(c, c->closing ? CLOSING_USEC : q->complete ? UINT64_MAX : q->head ? body_usec(c) : q->begun ? l->head_usec : l->idle_usec);
}

void http_conn_pause(HttpConn *c, bool paused) {
        if (c->paused == paused)
                return;
        c->paused = paused;
        if (!c->stuck)
                set_phase_timer(c);
        if (!paused)
                http_conn_wake(c);
}

/* As outbox_flush(). Whoever reads slowly holds up those who write to it; who does not read at all is cut in the end. */
static int flush(HttpConn *c) {
        size_t before = outbox_size(&c->out);

        int r = outbox_flush(&c->out, c->fd);
        if (r == 0 && (!c->stuck || outbox_size(&c->out) < before)) {
                c->stuck = true;
                set_timer(c, c->server->limits.write_usec);
        } else if (r > 0 && c->stuck) {
                c->stuck = false;
                set_phase_timer(c);
        }
        return r;
}

static void on_head(void *userdata) {
        HttpConn *c = userdata;
        const char *expect = http_field(http_request(c), "Expect");

        c->cors = http_field(http_request(c), "Origin");
        c->server->begin(c, c->server->userdata);
        if (expect && !c->reply_begun && !http_request(c)->http_10 && strcasecmp(expect, "100-continue") == 0 &&
            outbox_put(&c->out, "HTTP/1.1 100 Continue\r\n\r\n", 25) < 0)
                http_conn_break(c);
}

static void gather(HttpConn *c, const uint8_t *data, size_t size) {
        if (size > c->server->limits.body_bytes - c->n_body) {
                http_reply_error(c, 413, "the body is larger than %zu bytes", c->server->limits.body_bytes);
                return;
        }
        if (c->n_body + size + 1 > c->body_allocated) {
                size_t allocated = MAX(MAX(c->body_allocated * 2, c->n_body + size + 1), (size_t) BODY_FIRST);
                uint8_t *body = realloc(c->body, allocated);
                if (!body) {
                        http_conn_break(c);
                        return;
                }
                c->body = body;
                c->body_allocated = allocated;
        }
        memcpy(c->body + c->n_body, data, size);
        c->n_body += size;
        c->body[c->n_body] = 0;
}

static void on_body(void *userdata, const uint8_t *data, size_t size) {
        HttpConn *c = userdata;

        /* Who answers already asks for no more of it. */
        if (c->reply_begun || !c->handler)
                return;
        if (c->handler->body)
                c->handler->body(c, data, size);
        else
                gather(c, data, size);
}

static void bad_request(HttpConn *c, int error) {
        c->close = true;
        if (c->reply_begun)
                http_conn_break(c);
        else
                http_reply_error(
                        c, error == -EMSGSIZE ? 431 : error == -EBADMSG ? 400 : 500, "%s",
                        error == -EMSGSIZE ? "the head of the request is too large" :
                        error == -EBADMSG  ? "this is not HTTP/1.1" : strerror(-error));
}

/* Bytes that are behind the end of this request wait for the next. */
static void feed(HttpConn *c, const uint8_t *data, size_t size) {
        bool begun = c->parser.request.begun, head = c->parser.request.head;

        ssize_t used = http_parser_feed(&c->parser, data, size);
        if (used < 0) {
                bad_request(c, (int) used);
                return;
        }
        if ((size_t) used < size) {
                uint8_t *waiting = malloc(size - (size_t) used);
                if (!waiting) {
                        http_conn_break(c);
                        return;
                }
                memcpy(waiting, data + used, size - (size_t) used);
                c->waiting = waiting;
                c->n_waiting = size - (size_t) used;
        }

        const HttpRequest *q = http_request(c);
        if (q->complete)
                set_timer(c, UINT64_MAX);
        else if (q->head)
                set_timer(c, body_usec(c));
        else if (q->begun && !begun && !head)
                set_timer(c, c->server->limits.head_usec);
        if (q->complete && !c->reply_ended && c->handler)
                c->handler->complete(c);
}

/* 1: something came, 0: nothing at the moment, -EPIPE: the end */
static int read_some(HttpConn *c) {
        static uint8_t buf[READ_SIZE];

        if (c->waiting) {
                _cleanup_free_ uint8_t *waiting = TAKE_PTR(c->waiting);

                feed(c, waiting, c->n_waiting);
                return 1;
        }
        ssize_t n = read(c->fd, buf, sizeof(buf));
        if (n < 0)
                return errno == EINTR ? 1 : errno == EAGAIN ? 0 : -errno;
        if (n == 0)
                return -EPIPE;
        if (!c->closing)
                feed(c, buf, (size_t) n);
        return 1;
}

/* A client that is sending yet would be reset, and lose the answer. */
static void begin_closing(HttpConn *c) {
        c->closing = true;
        end_request(c);
        free(TAKE_PTR(c->waiting));
        (void) shutdown(c->fd, SHUT_WR);
        set_timer(c, CLOSING_USEC);
}

static void next_request(HttpConn *c) {
        end_request(c);
        http_parser_next(&c->parser);
        set_timer(c, c->server->limits.idle_usec);
}

static bool is_held(const HttpServer *s) {
        return s->held && s->held(s->userdata);
}

/* 1: goes on, 0: waits, or a negative errno: it is over */
static int conn_step(HttpConn *c) {
        int r = flush(c);
        if (r <= 0)
                return r;
        if (c->broken)
                return -ECONNRESET;
        if (c->closing)
                return read_some(c);
        if (c->reply_ended && c->close) {
                begin_closing(c);
                return 1;
        }
        if (!c->parser.request.complete)
                return c->paused || is_held(c->server) ? 0 : read_some(c);
        if (c->reply_ended) {
                next_request(c);
                return 1;
        }
        if (!c->handler || !c->handler->writable)
                return 0;
        c->handler->writable(c);
        return c->reply_ended || c->broken || outbox_size(&c->out) > 0;
}

static void conn_run(HttpConn *c, uint32_t events) {
        bool ended = events & (EPOLLRDHUP|EPOLLHUP|EPOLLERR);
        int r = 1;

        if (c->broken || (ended && c->handler && c->handler->gone && c->parser.request.complete && !c->reply_ended))
                r = -ECONNRESET;
        for (unsigned i = 0; r > 0 && i < STEPS_PER_TURN; i++)
                r = conn_step(c);
        if (r < 0)
                http_conn_free(c);
        else if (r > 0)
                http_conn_wake(c);
}

static void on_conn(LoopSource *s, uint32_t events) {
        conn_run(s->userdata, events);
}

static void on_timer(LoopSource *s, uint32_t events) {
        HttpConn *c = s->userdata;

        c->broken |= c->stuck;
        http_conn_free(c);
}

int http_conn_new(HttpServer *s, int fd) {
        const int one = 1, idle = 60, count = 4;

        HttpConn *c = new0(HttpConn, 1);
        if (!c)
                return -ENOMEM;
        *c = (HttpConn) { .server = s, .fd = fd };
        http_parser_init(&c->parser, on_head, on_body, c);

        int r = loop_add_timer(s->loop, &c->timer, s->limits.idle_usec, on_timer, c);
        if (r >= 0)
                r = loop_add(s->loop, &c->source, fd, LOOP_EDGES, on_conn, c);
        if (r < 0) {
                loop_remove(&c->timer);
                free(c);
                return r;
        }
        /* A client that vanished without a word is found out, however long a stream is silent. */
        (void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
        (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
        (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
        (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
        (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        LIST_PREPEND(s->conns, c);
        s->n_conns++;
        return 0;
}
