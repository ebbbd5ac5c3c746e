/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "guest/local-connect.h"

static void local_connect_try(LocalConnect *c);

static int begin(LocalConnect *c) {
        struct sockaddr_in in4 = {
                .sin_family = AF_INET, .sin_port = htons(c->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        };
        struct sockaddr_in6 in6 = {
                .sin6_family = AF_INET6, .sin6_port = htons(c->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT,
        };

        c->fd = socket(c->ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (c->fd < 0)
                return -errno;
        int r = c->ipv6 ? connect(c->fd, (struct sockaddr *) &in6, sizeof(in6)) :
                          connect(c->fd, (struct sockaddr *) &in4, sizeof(in4));
        return r < 0 ? -errno : 0;
}

static void finish(LocalConnect *c) {
        int one = 1;

        (void) setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        c->done(c, TAKE_FD(c->fd));
}

static void fail(LocalConnect *c, int error) {
        c->fd = safe_close(c->fd);
        /* Nothing listens by IPv6 either where there is none. */
        if (c->ipv6 && (error == -EAFNOSUPPORT || error == -EADDRNOTAVAIL))
                error = -ECONNREFUSED;
        if (c->last) {
                c->done(c, error);
                return;
        }
        c->ipv6 = !c->ipv6;
        c->last = true;
        local_connect_try(c);
}

static void on_connect(LoopSource *s, uint32_t events) {
        LocalConnect *c = s->userdata;
        socklen_t size = sizeof(int);
        int error = 0;

        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
                error = errno;
        loop_remove(&c->source);
        if (error != 0)
                fail(c, -error);
        else
                finish(c);
}

static void local_connect_try(LocalConnect *c) {
        int r = begin(c);
        if (r == -EINPROGRESS) {
                r = loop_add(c->loop, &c->source, c->fd, EPOLLOUT, on_connect, c);
                if (r >= 0)
                        return;
        }
        if (r < 0)
                fail(c, r);
        else
                finish(c);
}

void local_connect_start(LocalConnect *c, Loop *loop, uint16_t port, bool ipv6_first, LocalConnectDone done,
                         void *userdata) {
        *c = (LocalConnect) {
                .loop = loop,
                .fd = -EBADF,
                .port = port,
                .ipv6 = ipv6_first,
                .done = done,
                .userdata = userdata,
        };
        local_connect_try(c);
}

void local_connect_stop(LocalConnect *c) {
        struct linger reset = { .l_onoff = 1 };

        if (!c->loop)
                return;
        loop_remove(&c->source);
        /* The server may have taken it just now, and shall not believe that its client is done. */
        if (c->fd >= 0)
                (void) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        c->fd = safe_close(c->fd);
}
