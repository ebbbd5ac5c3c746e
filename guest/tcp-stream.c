/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/agent-proto.h"
#include "guest/relay.h"
#include "guest/tcp-stream.h"
#include "guest/transport.h"

typedef struct TcpStream {
        Relay relay;
        Stream *stream;
        int fd;
        uint16_t port;
        bool tried_ipv6;
        bool connecting;
        LoopSource connect_source;
} TcpStream;

static void tcp_try(TcpStream *x);

static void tcp_stream_done(Stream *s) {
        TcpStream *x = s->state;

        loop_remove(&x->connect_source);
        relay_done(&x->relay);
        safe_close(x->fd);
        free(x);
}

static void tcp_connected(TcpStream *x) {
        int one = 1;

        x->connecting = false;
        (void) setsockopt(x->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        int r = relay_init(&x->relay, x->stream, x->fd, true, true);
        if (r < 0)
                stream_answer_error(x->stream, r, "port %u: %s", x->port, strerror(-r));
        else
                stream_answer_ok(x->stream, NULL);
}

static void tcp_failed(TcpStream *x, int error) {
        x->fd = safe_close(x->fd);
        if (x->tried_ipv6)
                stream_answer_error(x->stream, error, "port %u in the guest: %s", x->port, strerror(-error));
        else {
                x->tried_ipv6 = true;
                tcp_try(x);
        }
}

static void on_connect(LoopSource *s, uint32_t events) {
        TcpStream *x = s->userdata;
        socklen_t size = sizeof(int);
        int error = 0;

        if (getsockopt(x->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
                error = errno;
        loop_remove(&x->connect_source);
        if (error != 0)
                tcp_failed(x, -error);
        else
                tcp_connected(x);
}

static int tcp_connect(TcpStream *x) {
        struct sockaddr_in in4 = {
                .sin_family = AF_INET, .sin_port = htons(x->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        };
        struct sockaddr_in6 in6 = {
                .sin6_family = AF_INET6, .sin6_port = htons(x->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT,
        };

        x->fd = socket(x->tried_ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (x->fd < 0)
                /* A kernel without IPv6 has nothing listening there either. */
                return errno == EAFNOSUPPORT ? -ECONNREFUSED : -errno;

        int r = x->tried_ipv6 ? connect(x->fd, (struct sockaddr *) &in6, sizeof(in6)) :
                                connect(x->fd, (struct sockaddr *) &in4, sizeof(in4));
        return r < 0 ? -errno : 0;
}

static void tcp_try(TcpStream *x) {
        int r = tcp_connect(x);
        if (r == -EINPROGRESS) {
                r = loop_add(&x->stream->agent->loop, &x->connect_source, x->fd, EPOLLOUT, on_connect, x);
                if (r >= 0)
                        return;
        }
        if (r == -EADDRNOTAVAIL && x->tried_ipv6)
                r = -ECONNREFUSED;
        if (r < 0)
                tcp_failed(x, r);
        else
                tcp_connected(x);
}

static void tcp_stream_run(Stream *s, uint32_t events) {
        TcpStream *x = s->state;

        if (x->connecting) {
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
        x->port = (uint16_t) q->port;
        x->connecting = true;
        stream_set_kind(s, &kind, x);
        tcp_try(x);
}
