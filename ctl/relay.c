/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "ctl/relay.h"

#define RELAY_BYTES (64U * 1024U)

/* One way: what was read from one end and not yet written to the other. */
typedef struct Way {
        uint8_t buffer[RELAY_BYTES];
        size_t start, end;
        bool eof;      /* no more to read */
        bool closed;   /* told the other end so */
} Way;

typedef struct Relay {
        int fds[2];
        sd_event_source *sources[2];
        Way ways[2];   /* ways[i] reads from fds[i] */
        void (*ended)(void *userdata);
        void *userdata;
} Relay;

static void relay_free(Relay *x) {
        for (size_t i = 0; i < 2; i++) {
                sd_event_source_disable_unref(x->sources[i]);
                safe_close(x->fds[i]);
        }
        if (x->ended)
                x->ended(x->userdata);
        free(x);
}

static int way_read(Way *w, int fd) {
        if (w->eof || w->start != w->end)
                return 0;

        ssize_t n = recv(fd, w->buffer, sizeof(w->buffer), MSG_DONTWAIT);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        w->start = 0;
        w->end = (size_t) n;
        w->eof = n == 0;
        return n > 0;
}

static int way_write(Way *w, int fd) {
        while (w->start < w->end) {
                ssize_t n = send(fd, w->buffer + w->start, w->end - w->start, MSG_DONTWAIT|MSG_NOSIGNAL);
                if (n < 0)
                        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
                w->start += (size_t) n;
        }
        if (w->eof && !w->closed) {
                (void) shutdown(fd, SHUT_WR);
                w->closed = true;
        }
        return 0;
}

/* A bounded number of turns, so that one busy connection does not keep the others waiting. */
static int way_move(Way *w, int from, int to) {
        for (unsigned i = 0; i < 8; i++) {
                int n = way_read(w, from);
                if (n < 0)
                        return n;
                int r = way_write(w, to);
                if (r < 0)
                        return r;
                if (n == 0)
                        break;
        }
        return 0;
}

static uint32_t wanted_events(const Relay *x, size_t i) {
        const Way *in = &x->ways[i], *out = &x->ways[1 - i];
        uint32_t events = 0;

        if (!in->eof && in->start == in->end)
                events |= EPOLLIN;
        if (out->start != out->end)
                events |= EPOLLOUT;
        return events;
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Relay *x = userdata;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < 2; i++)
                r = way_move(&x->ways[i], x->fds[i], x->fds[1 - i]);
        if (r < 0 || (x->ways[0].closed && x->ways[1].closed)) {
                relay_free(x);
                return 0;
        }

        for (size_t i = 0; i < 2; i++) {
                uint32_t events = wanted_events(x, i);
                /* A hang-up is reported even to one who asks for nothing, again and again. */
                (void) sd_event_source_set_enabled(x->sources[i], events ? SD_EVENT_ON : SD_EVENT_OFF);
                (void) sd_event_source_set_io_events(x->sources[i], events);
        }
        return 0;
}

int relay_start(sd_event *event, int a, int b, void (*ended)(void *userdata), void *userdata) {
        Relay *x = new0(Relay, 1);
        if (!x) {
                safe_close(a);
                safe_close(b);
                return -ENOMEM;
        }

        x->fds[0] = a;
        x->fds[1] = b;
        for (size_t i = 0; i < 2; i++) {
                int r = fd_set_nonblock(x->fds[i], true);
                if (r >= 0)
                        r = sd_event_add_io(event, &x->sources[i], x->fds[i], EPOLLIN, on_io, x);
                if (r < 0) {
                        relay_free(x);
                        return r;
                }
        }
        x->ended = ended;
        x->userdata = userdata;
        return 0;
}
