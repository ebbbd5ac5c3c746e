/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/socket.h>

#include "guest/http-server.h"
#include "guest/log.h"

int http_listen(uint16_t port, int *ret_fd) {
        union {
                struct sockaddr_in6 in6;
                struct sockaddr_in in;
        } any = { .in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT } };
        const int one = 1, zero = 0;
        socklen_t size = sizeof(any.in6);

        _cleanup_close_ int fd = socket(AF_INET6, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero)) < 0)
                return -errno;
        if (fd < 0) {
                /* A kernel without IPv6. */
                any.in = (struct sockaddr_in) { .sin_family = AF_INET, .sin_port = htons(port) };
                size = sizeof(any.in);
                fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        }
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
            bind(fd, (struct sockaddr *) &any, size) < 0 || listen(fd, SOMAXCONN) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static void on_listen(LoopSource *source, uint32_t events) {
        HttpServer *s = source->userdata;

        _cleanup_close_ int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK);
        if (fd < 0) {
                if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
                        log_warning("HTTP connection not accepted: %s", strerror(errno));
                return;
        }
        /* Closed at once: who opens that many is told by that. */
        if (s->n_conns >= s->limits.connections)
                return;

        int r = http_conn_new(s, fd);
        if (r < 0)
                log_warning("HTTP connection not accepted: %s", strerror(-r));
        else
                TAKE_FD(fd);
}

int http_server_start(
        HttpServer *s, Loop *l, int listen_fd, const HttpLimits *limits, void (*begin)(HttpConn *c, void *userdata),
        void *userdata) {
        *s = (HttpServer) {
                .loop = l,
                .listen_fd = listen_fd,
                .limits = *limits,
                .begin = begin,
                .userdata = userdata,
        };

        int r = loop_add(l, &s->source, listen_fd, EPOLLIN, on_listen, s);
        if (r < 0)
                s->listen_fd = safe_close(s->listen_fd);
        return r;
}

void http_server_wake(HttpServer *s) {
        for (HttpConn *c = s->conns; c; c = c->list_next)
                http_conn_wake(c);
}

void http_server_cut(HttpServer *s) {
        const struct linger reset = { .l_onoff = 1 };

        while (s->conns) {
                (void) setsockopt(s->conns->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
                http_conn_free(s->conns);
        }
}

void http_server_stop(HttpServer *s) {
        if (!http_server_runs(s))
                return;
        http_server_cut(s);
        loop_remove(&s->source);
        s->listen_fd = safe_close(s->listen_fd);
}
