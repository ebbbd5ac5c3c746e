/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent's one event loop: epoll, one thread, one event at a time.
 *
 * A LoopSource is embedded in the object that it wakes. The loop never owns a file descriptor,
 * except those of timers and idle sources, which it makes itself. Since events are taken one by
 * one, a callback may remove and free any source, its own included. Ready sources are served in
 * turn, so a callback that does a bounded piece of work and re-arms itself starves nobody.
 *
 * Sockets and pipes are watched edge-triggered: a callback goes on until -EAGAIN, or calls
 * loop_rearm() to be called again. */

#include <sys/epoll.h>

#include "base/macros.h"

typedef struct Loop {
        int epoll_fd;
        bool stop;
} Loop;

typedef struct LoopSource LoopSource;
typedef void (*LoopCallback)(LoopSource *s, uint32_t events);

struct LoopSource {
        Loop *loop;             /* NULL while not added */
        int fd;
        uint32_t events;
        LoopCallback callback;
        void *userdata;
        bool own_fd;
};

#define LOOP_EDGES (EPOLLIN|EPOLLOUT|EPOLLRDHUP|EPOLLET)

int loop_init(Loop *l);
void loop_done(Loop *l);
/* Until l->stop. */
int loop_run(Loop *l);

/* -EPERM for an fd that is always ready: a regular file, or a device without a poll operation. */
int loop_add(Loop *l, LoopSource *s, int fd, uint32_t events, LoopCallback callback, void *userdata);
int loop_modify(LoopSource *s, uint32_t events);
/* Calls back again soon if the fd is ready. */
int loop_rearm(LoopSource *s);
void loop_remove(LoopSource *s);

/* Fires once, usec from now; loop_set_timer() arms it again. */
int loop_add_timer(Loop *l, LoopSource *s, uint64_t usec, LoopCallback callback, void *userdata);
int loop_set_timer(LoopSource *s, uint64_t usec);
/* Called on each turn of the loop, for long work done in steps; loop_modify(s, 0) puts it to sleep,
 * EPOLLIN wakes it. */
int loop_add_idle(Loop *l, LoopSource *s, LoopCallback callback, void *userdata);
