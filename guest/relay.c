/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/relay.h"
#include "guest/transport.h"

static void on_local(LoopSource *source, uint32_t events) {
        Relay *r = source->userdata;

        r->local_events |= events;
        stream_run(r->stream, 0);
}

int relay_init(Relay *r, Stream *s, int local_fd, bool up, bool down) {
        *r = (Relay) {
                .stream = s,
                .local_fd = local_fd,
                .up_open = up,
                .down_open = down,
        };
        return loop_add(&s->agent->loop, &r->local, local_fd, LOOP_EDGES, on_local, r);
}

static int run_down(Relay *r, bool *again) {
        switch (pump_run(&r->down, r->local_fd, r->stream->fd)) {
        case PUMP_AGAIN:
                *again = true;
                return 0;
        case PUMP_END:
                r->down_open = false;
                return RELAY_DOWN_END;
        case PUMP_BROKEN:
                r->down_open = false;
                return RELAY_HOST_GONE;
        default:
                return 0;
        }
}

static int run_up(Relay *r, bool *again) {
        PumpResult result = r->local_events & EPOLLERR ? PUMP_BROKEN :
                                                         pump_run(&r->up, r->stream->fd, r->local_fd);

        switch (result) {
        case PUMP_AGAIN:
                *again = true;
                return 0;
        case PUMP_END:
                r->up_open = false;
                return RELAY_UP_END;
        case PUMP_BROKEN:
                r->up_open = false;
                return RELAY_LOCAL_GONE;
        default:
                return 0;
        }
}

int relay_run(Relay *r, uint32_t events) {
        bool again = false;
        int what = 0;

        if (r->down_open)
                what |= run_down(r, &again);
        if (r->up_open)
                what |= run_up(r, &again);
        r->local_events = 0;

        /* A host that closed altogether may have sent something before, so its direction comes to
         * its end first. */
        if (!r->up_open && r->down_open && (events & (EPOLLRDHUP|EPOLLHUP|EPOLLERR) || what & RELAY_UP_END) &&
            transport_peer_gone(r->stream->fd)) {
                r->down_open = false;
                what |= RELAY_HOST_GONE;
        }

        if (again)
                stream_wake(r->stream);
        return what;
}

void relay_done(Relay *r) {
        loop_remove(&r->local);
        pump_done(&r->up);
        pump_done(&r->down);
}
