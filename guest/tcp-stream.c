/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>

#include "base/agent-proto.h"
#include "guest/local-connect.h"
#include "guest/relay.h"
#include "guest/tcp-stream.h"
#include "guest/transport.h"

typedef struct TcpStream {
        Relay relay;
        Stream *stream;
        int fd;
        LocalConnect connect;
} TcpStream;

static void tcp_stream_done(Stream *s) {
        TcpStream *x = s->state;

        local_connect_stop(&x->connect);
        relay_done(&x->relay);
        safe_close(x->fd);
        free(x);
}

static void on_connected(LocalConnect *c, int fd) {
        TcpStream *x = c->userdata;

        if (fd < 0) {
                stream_answer_error(x->stream, fd, "port %u in the guest: %s", c->port, strerror(-fd));
                return;
        }
        x->fd = fd;
        int r = relay_init(&x->relay, x->stream, x->fd, true, true);
        if (r < 0)
                stream_answer_error(x->stream, r, "port %u: %s", c->port, strerror(-r));
        else
                stream_answer_ok(x->stream, NULL);
}

static void tcp_stream_run(Stream *s, uint32_t events) {
        TcpStream *x = s->state;

        if (x->fd < 0) {
                if ((events & (EPOLLRDHUP|EPOLLHUP|EPOLLERR)) && transport_peer_gone(s->fd))
                        stream_free(s);
                return;
        }

        int what = relay_run(&x->relay, events);
        if (what & RELAY_UP_END)
                (void) shutdown(x->fd, SHUT_WR);
        if (what & RELAY_DOWN_END)
                (void) shutdown(s->fd, SHUT_WR);
        if ((what & RELAY_HOST_GONE) || (!x->relay.up_open && !x->relay.down_open))
                stream_free(s);
}

void tcp_stream_start(Stream *s, Request *q) {
        static const StreamKind kind = { .run = tcp_stream_run, .done = tcp_stream_done };

        if (q->port == 0 || q->port > UINT16_MAX) {
                stream_answer_error(s, -EINVAL, "no port %u", q->port);
                return;
        }
        TcpStream *x = new0(TcpStream, 1);
        if (!x) {
                stream_answer_error(s, -ENOMEM, "port %u: out of memory", q->port);
                return;
        }

        x->stream = s;
        x->fd = -EBADF;
        stream_set_kind(s, &kind, x);
        local_connect_start(&x->connect, &s->agent->loop, (uint16_t) q->port, false, on_connected, x);
}
