/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "guest/forward.h"
#include "guest/loopback.h"

/* Who went without a word is noticed after this time and some tries. */
#define KEEPALIVE_SEC 300
#define KEEPALIVE_TRY_SEC 30
#define KEEPALIVE_TRIES 4

static void side_done(ForwardSide *s) {
        loop_remove(&s->source);
        pump_done(&s->pump);
        s->fd = safe_close(s->fd);
}

static void forward_free(Forward *f) {
        local_connect_stop(&f->connect);
        side_done(&f->outside);
        side_done(&f->server);
        loopback_remove(f->loopback, f);
        free(f);
}

/* Its close is a reset. */
static void side_set_reset(ForwardSide *s) {
        struct linger reset = { .l_onoff = 1 };

        if (s->fd >= 0)
                (void) setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

void forward_abandon(Forward *f) {
        side_set_reset(&f->outside);
        side_set_reset(&f->server);
        forward_free(f);
}

/* Whether the connection goes on. */
static bool run_side(ForwardSide *from, ForwardSide *to) {
        if (!from->open)
                return !from->failed;

        switch (pump_run(&from->pump, from->fd, to->fd)) {
        case PUMP_AGAIN:
                (void) loop_rearm(&from->source);
                return true;
        case PUMP_END:
                from->open = false;
                (void) shutdown(to->fd, SHUT_WR);
                return !from->failed;
        case PUMP_BROKEN:
                return false;
        default:
                return true;
        }
}

static void forward_run(Forward *f) {
        if (!run_side(&f->outside, &f->server) || !run_side(&f->server, &f->outside) ||
            (!f->outside.open && !f->server.open))
                forward_free(f);
}

static void on_side(LoopSource *source, uint32_t events) {
        ForwardSide *s = source->userdata;

        s->failed |= (events & EPOLLERR) != 0;
        forward_run(s->forward);
}

static int side_open(ForwardSide *s, int fd) {
        s->fd = fd;
        s->open = true;
        return loop_add(s->forward->connect.loop, &s->source, fd, LOOP_EDGES, on_side, s);
}

static void on_connected(LocalConnect *c, int fd) {
        Forward *f = c->userdata;

        if (fd < 0 || side_open(&f->server, fd) < 0 || side_open(&f->outside, f->outside.fd) < 0) {
                forward_abandon(f);
                return;
        }
        forward_run(f);
}

static void set_options(int fd) {
        const int one = 1, idle = KEEPALIVE_SEC, interval = KEEPALIVE_TRY_SEC, tries = KEEPALIVE_TRIES;

        (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
        (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
        (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
        (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
}

/* The port that the client meant, and whether it came by IPv6. */
static int wanted(int fd, uint16_t *ret_port, bool *ret_ipv6) {
        union {
                struct sockaddr sa;
                struct sockaddr_in in4;
                struct sockaddr_in6 in6;
        } a = {};
        socklen_t size = sizeof(a);

        if (getsockname(fd, &a.sa, &size) < 0)
                return -errno;
        *ret_ipv6 = a.sa.sa_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&a.in6.sin6_addr);
        *ret_port = ntohs(a.sa.sa_family == AF_INET6 ? a.in6.sin6_port : a.in4.sin_port);
        return 0;
}

int forward_new(Loopback *l, int fd) {
        _cleanup_close_ int own = fd;
        uint16_t port = 0;
        bool ipv6 = false;

        int r = wanted(fd, &port, &ipv6);
        if (r < 0)
                return r;
        /* Who connects to the listener itself means nobody. */
        if (port == LOOPBACK_LISTENER_PORT)
                return -ECONNREFUSED;
        Forward *f = new0(Forward, 1);
        if (!f)
                return -ENOMEM;

        set_options(fd);
        f->loopback = l;
        f->outside = (ForwardSide) { .forward = f, .fd = TAKE_FD(own) };
        f->server = (ForwardSide) { .forward = f, .fd = -EBADF };
        loopback_add(l, f);
        local_connect_start(&f->connect, l->loop, port, ipv6, on_connected, f);
        return 0;
}
