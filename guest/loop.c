/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "guest/loop.h"

int loop_init(Loop *l) {
        assert(l);

        *l = (Loop) { .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
        return l->epoll_fd < 0 ? -errno : 0;
}

void loop_done(Loop *l) {
        l->epoll_fd = safe_close(l->epoll_fd);
}

int loop_run(Loop *l) {
        assert(l);

        while (!l->stop) {
                struct epoll_event e;

                int n = epoll_wait(l->epoll_fd, &e, 1, -1);
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n <= 0)
                        continue;

                LoopSource *s = e.data.ptr;
                s->callback(s, e.events);
        }
        return 0;
}

int loop_add(Loop *l, LoopSource *s, int fd, uint32_t events, LoopCallback callback, void *userdata) {
        struct epoll_event e = { .events = events, .data.ptr = s };

        assert(l);
        assert(s);
        assert(!s->loop);

        if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
                return -errno;

        *s = (LoopSource) {
                .loop = l,
                .fd = fd,
                .events = events,
                .callback = callback,
                .userdata = userdata,
        };
        return 0;
}

int loop_modify(LoopSource *s, uint32_t events) {
        struct epoll_event e = { .events = events, .data.ptr = s };

        assert(s->loop);

        if (epoll_ctl(s->loop->epoll_fd, EPOLL_CTL_MOD, s->fd, &e) < 0)
                return -errno;
        s->events = events;
        return 0;
}

int loop_rearm(LoopSource *s) {
        return loop_modify(s, s->events);
}

void loop_remove(LoopSource *s) {
        if (!s->loop)
                return;

        (void) epoll_ctl(s->loop->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
        if (s->own_fd)
                safe_close(s->fd);
        *s = (LoopSource) { .fd = -EBADF };
}

static int add_owned(Loop *l, LoopSource *s, int fd, uint32_t events, LoopCallback callback, void *userdata) {
        int r = loop_add(l, s, fd, events, callback, userdata);
        if (r < 0) {
                safe_close(fd);
                return r;
        }
        s->own_fd = true;
        return 0;
}

int loop_add_timer(Loop *l, LoopSource *s, uint64_t usec, LoopCallback callback, void *userdata) {
        int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC|TFD_NONBLOCK);
        if (fd < 0)
                return -errno;

        /* Edge-triggered: each expiry wakes once, and nobody has to read the counter. */
        int r = add_owned(l, s, fd, EPOLLIN|EPOLLET, callback, userdata);
        if (r < 0)
                return r;
        return loop_set_timer(s, usec);
}

int loop_set_timer(LoopSource *s, uint64_t usec) {
        /* A value of zero would disarm it, and one above what time_t holds is refused. */
        usec = MIN(MAX(usec, 1ULL), (uint64_t) INT64_MAX / 2);
        struct itimerspec spec = {
                .it_value.tv_sec = (time_t) (usec / USEC_PER_SEC),
                .it_value.tv_nsec = (long) (usec % USEC_PER_SEC * NSEC_PER_USEC),
        };

        assert(s->loop);

        return timerfd_settime(s->fd, 0, &spec, NULL) < 0 ? -errno : 0;
}

int loop_add_idle(Loop *l, LoopSource *s, LoopCallback callback, void *userdata) {
        int fd = eventfd(1, EFD_CLOEXEC|EFD_NONBLOCK);
        if (fd < 0)
                return -errno;

        return add_owned(l, s, fd, EPOLLIN, callback, userdata);
}
