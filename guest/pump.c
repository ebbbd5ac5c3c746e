/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/pump.h"

/* Bytes of one turn, so that a fast stream leaves room for the others. */
#define PUMP_BUDGET (4U * PUMP_CHUNK)

static uint8_t chunk[PUMP_CHUNK];

/* How much the sink took, or a negative errno when it is broken. */
static ssize_t write_some(int fd, const uint8_t *data, size_t size) {
        size_t done = 0;

        while (done < size) {
                ssize_t n = write(fd, data + done, size - done);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        if (errno == EAGAIN)
                                break;
                        return -errno;
                }
                done += (size_t) n;
        }
        return (ssize_t) done;
}

int pump_push(Pump *p, const void *data, size_t size) {
        assert(!p->pending);

        p->pending = malloc(size);
        if (!p->pending)
                return -ENOMEM;
        memcpy(p->pending, data, size);
        p->size = size;
        p->offset = 0;
        return 0;
}

void pump_done(Pump *p) {
        free(p->pending);
        *p = (Pump) { .ended = p->ended };
}

static PumpResult pump_flush(Pump *p, int sink) {
        ssize_t n = write_some(sink, p->pending + p->offset, p->size - p->offset);
        if (n < 0)
                return PUMP_BROKEN;

        p->offset += (size_t) n;
        if (p->offset < p->size)
                return PUMP_WAIT;
        pump_done(p);
        return PUMP_AGAIN;
}

PumpResult pump_run(Pump *p, int source, int sink) {
        for (size_t moved = 0; moved < PUMP_BUDGET;) {
                if (p->pending) {
                        PumpResult r = pump_flush(p, sink);
                        if (r != PUMP_AGAIN)
                                return r;
                }
                if (p->ended)
                        return PUMP_END;

                ssize_t n = read(source, chunk, sizeof(chunk));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return PUMP_WAIT;
                /* EIO is the end of a terminal, ECONNRESET one of a socket. */
                if (n <= 0) {
                        p->ended = true;
                        continue;
                }
                moved += (size_t) n;

                ssize_t taken = write_some(sink, chunk, (size_t) n);
                if (taken < 0 || (taken < n && pump_push(p, chunk + taken, (size_t) (n - taken)) < 0))
                        return PUMP_BROKEN;
        }
        return PUMP_AGAIN;
}
