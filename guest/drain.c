/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/drain.h"

#define DRAIN_CHUNK (64U * 1024U)
#define CHUNKS_PER_TURN 4U

/* 1: there may be more, 0: none at the moment, -EPIPE: all has come */
static int drain_some(int fd) {
        static uint8_t chunk[DRAIN_CHUNK];

        for (unsigned i = 0; i < CHUNKS_PER_TURN; i++) {
                ssize_t n = read(fd, chunk, sizeof(chunk));
                if (n < 0 && errno == EAGAIN)
                        return 0;
                /* EIO is the end of a terminal. */
                if (n == 0 || (n < 0 && errno != EINTR))
                        return -EPIPE;
        }
        return 1;
}

static void on_output(LoopSource *s, uint32_t events) {
        Drain *d = s->userdata;

        int r = drain_some(s->fd);
        if (r > 0)
                (void) loop_rearm(s);
        if (r >= 0)
                return;
        drain_stop(d);
        d->ended(d, d->userdata);
}

int drain_start(Drain *d, Loop *l, int fd, void (*ended)(Drain *d, void *userdata), void *userdata) {
        int r = loop_add(l, &d->source, fd, EPOLLIN|EPOLLRDHUP|EPOLLET, on_output, d);
        if (r < 0)
                return r;
        d->ended = ended;
        d->userdata = userdata;
        return 0;
}

void drain_stop(Drain *d) {
        loop_remove(&d->source);
}
