/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "ctl/pump.h"

#define PUMP_BYTES (128U * 1024U)

/* Somebody else may have made our streams non-blocking. */
static bool try_again(int fd, short events) {
        if (errno == EINTR)
                return true;
        if (errno != EAGAIN)
                return false;
        return poll(&(struct pollfd) { .fd = fd, .events = events }, 1, -1) >= 0 || errno == EINTR;
}

static ssize_t read_some(int fd, void *buf, size_t size) {
        for (;;) {
                ssize_t n = read(fd, buf, size);
                if (n >= 0 || !try_again(fd, POLLIN))
                        return n;
        }
}

static bool write_all(Pump *p, const uint8_t *buf, size_t size) {
        while (size > 0) {
                ssize_t n = write(p->to, buf, size);
                if (n < 0) {
                        if (try_again(p->to, POLLOUT))
                                continue;
                        return false;
                }
                buf += n;
                size -= (size_t) n;
                atomic_fetch_add(&p->moved, (uint64_t) n);
        }
        return true;
}

/* Waits first, so that what was not read yet is seen in the socket, and what was by `busy`. False at the end. */
static bool move_some(Pump *p, uint8_t *buf) {
        struct pollfd fd = { .fd = p->from, .events = POLLIN };

        while (poll(&fd, 1, -1) < 0 && errno == EINTR)
                ;
        atomic_store(&p->busy, true);
        ssize_t n = read_some(p->from, buf, PUMP_BYTES);
        bool more = n > 0 && write_all(p, buf, (size_t) n);
        atomic_store(&p->busy, false);
        return more;
}

bool pump_has_more(const Pump *p) {
        struct pollfd fd = { .fd = p->from, .events = POLLIN };

        /* In this order: what is not in the socket any more has made it busy. */
        return !atomic_load(&p->done) && (poll(&fd, 1, 0) > 0 || atomic_load(&p->busy));
}

static void *pump_run(void *userdata) {
        static const uint64_t one = 1;
        Pump *p = userdata;

        uint8_t *buf = malloc(PUMP_BYTES);
        while (buf && move_some(p, buf))
                ;
        free(buf);

        /* Both ways, since one that only no longer reads is not told to a writer that waits for room. */
        if (p->to_guest)
                (void) shutdown(p->to, SHUT_WR);
        else
                (void) shutdown(p->from, SHUT_RDWR);
        atomic_store(&p->done, true);
        (void) !write(p->done_fd, &one, sizeof(one));
        return NULL;
}

int pump_start(Pump *p, int from, int to, bool to_guest, int done_fd) {
        *p = (Pump) { .from = from, .to = to, .to_guest = to_guest, .done_fd = done_fd };

        int r = pthread_create(&p->thread, NULL, pump_run, p);
        if (r != 0)
                return -r;
        (void) pthread_detach(p->thread);
        return 0;
}
