/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/queue.h>

#include "base/clock.h"
#include "base/macros.h"
#include "vmm/loop.h"

#define EVENTS_PER_ROUND 32
#define TIMER_OFF UINT64_MAX

typedef enum SourceKind {
        SOURCE_FD,
        SOURCE_TIMER,
        SOURCE_DEAD,  /* removed while a round runs; freed at its end */
} SourceKind;

struct LoopSource {
        Loop *loop;
        SourceKind kind;
        int fd;
        uint32_t events;
        uint64_t deadline_usec;
        LoopHandler handler;
        void *userdata;
        LIST_ENTRY(LoopSource) entry; /* of the list that the kind says */
};

LIST_HEAD(SourceList, LoopSource);

struct Loop {
        int epoll_fd;
        struct SourceList fds;
        struct SourceList timers;
        struct SourceList dead;
        bool dispatching;
        bool exiting;
        int exit_code;
};

int loop_new(Loop **ret) {
        assert(ret);

        Loop *l = new0(Loop, 1);
        if (!l)
                return -ENOMEM;

        l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (l->epoll_fd < 0) {
                int r = -errno;
                free(l);
                return r;
        }
        LIST_INIT(&l->fds);
        LIST_INIT(&l->timers);
        LIST_INIT(&l->dead);

        *ret = l;
        return 0;
}

static void free_list(struct SourceList *list) {
        LoopSource *s;

        while ((s = LIST_FIRST(list))) {
                LIST_REMOVE(s, entry);
                free(s);
        }
}

Loop *loop_free(Loop *l) {
        if (!l)
                return NULL;

        free_list(&l->fds);
        free_list(&l->timers);
        free_list(&l->dead);
        safe_close(l->epoll_fd);
        free(l);
        return NULL;
}

static int add_source(Loop *l, LoopSource template, struct SourceList *list, LoopSource **ret) {
        LoopSource *s = new0(LoopSource, 1);
        if (!s)
                return -ENOMEM;

        *s = template;
        s->loop = l;
        LIST_INSERT_HEAD(list, s, entry);
        *ret = s;
        return 0;
}

int loop_add_fd(Loop *l, int fd, uint32_t events, LoopHandler handler, void *userdata, LoopSource **ret) {
        LoopSource *s = NULL;

        assert(l);
        assert(fd >= 0);
        assert(handler);
        assert(ret);

        LoopSource template = { .kind = SOURCE_FD, .fd = fd, .events = events, .handler = handler,
                                .userdata = userdata };
        int r = add_source(l, template, &l->fds, &s);
        if (r < 0)
                return r;

        struct epoll_event ev = { .events = events, .data.ptr = s };
        if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
                r = -errno;
                LIST_REMOVE(s, entry);
                free(s);
                return r;
        }

        *ret = s;
        return 0;
}

int loop_set_events(LoopSource *s, uint32_t events) {
        assert(s);
        assert(s->kind == SOURCE_FD);

        if (s->events == events)
                return 0;

        struct epoll_event ev = { .events = events, .data.ptr = s };
        if (epoll_ctl(s->loop->epoll_fd, EPOLL_CTL_MOD, s->fd, &ev) < 0)
                return -errno;
        s->events = events;
        return 0;
}

int loop_add_timer(Loop *l, LoopHandler handler, void *userdata, LoopSource **ret) {
        assert(l);
        assert(handler);
        assert(ret);

        LoopSource template = { .kind = SOURCE_TIMER, .fd = -1, .deadline_usec = TIMER_OFF,
                                .handler = handler, .userdata = userdata };
        return add_source(l, template, &l->timers, ret);
}

int loop_timer_set(LoopSource *s, uint64_t usec) {
        assert(s);
        assert(s->kind == SOURCE_TIMER);

        if (usec == 0) {
                s->deadline_usec = TIMER_OFF;
                return 0;
        }

        uint64_t now = now_usec();
        s->deadline_usec = usec < TIMER_OFF - now ? now + usec : TIMER_OFF;
        return 0;
}

LoopSource *loop_remove(LoopSource *s) {
        if (!s)
                return NULL;

        assert(s->kind != SOURCE_DEAD);

        Loop *l = s->loop;
        if (s->kind == SOURCE_FD)
                (void) epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
        LIST_REMOVE(s, entry);

        if (!l->dispatching) {
                free(s);
                return NULL;
        }

        /* An event or timer of this round may still point here. */
        s->kind = SOURCE_DEAD;
        LIST_INSERT_HEAD(&l->dead, s, entry);
        return NULL;
}

static int next_timeout_msec(const Loop *l) {
        uint64_t deadline = TIMER_OFF;
        const LoopSource *s;

        LIST_FOREACH(s, &l->timers, entry)
                deadline = MIN(deadline, s->deadline_usec);
        if (deadline == TIMER_OFF)
                return -1;

        uint64_t now = now_usec();
        if (deadline <= now)
                return 0;
        /* Rounded up: waking early would only mean going round again. */
        return (int) MIN((deadline - now + USEC_PER_MSEC - 1) / USEC_PER_MSEC, (uint64_t) INT32_MAX);
}

static int dispatch_fds(Loop *l, const struct epoll_event *events, int n) {
        for (int i = 0; i < n && !l->exiting; i++) {
                LoopSource *s = events[i].data.ptr;

                if (s->kind == SOURCE_DEAD)
                        continue;
                int r = s->handler(s, s->fd, events[i].events, s->userdata);
                if (r < 0)
                        return r;
        }
        return 0;
}

static LoopSource *first_due(const Loop *l, uint64_t now) {
        LoopSource *s;

        LIST_FOREACH(s, &l->timers, entry)
                if (s->deadline_usec <= now)
                        return s;
        return NULL;
}

static int dispatch_timers(Loop *l) {
        LoopSource *s;

        if (LIST_EMPTY(&l->timers))
                return 0;

        /* Searched anew each time, since a handler may remove any timer. It ends: a timer that is
         * set again is due after this now. */
        uint64_t now = now_usec();
        while (!l->exiting && (s = first_due(l, now))) {
                s->deadline_usec = TIMER_OFF;
                int r = s->handler(s, -1, 0, s->userdata);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int run_once(Loop *l) {
        struct epoll_event events[EVENTS_PER_ROUND];

        int n = epoll_wait(l->epoll_fd, events, EVENTS_PER_ROUND, next_timeout_msec(l));
        if (n < 0)
                return errno == EINTR ? 0 : -errno;

        l->dispatching = true;
        int r = dispatch_fds(l, events, n);
        if (r >= 0)
                r = dispatch_timers(l);
        l->dispatching = false;

        free_list(&l->dead);
        return r;
}

int loop_run(Loop *l) {
        assert(l);

        while (!l->exiting) {
                int r = run_once(l);
                if (r < 0)
                        return r;
        }

        l->exiting = false;
        return l->exit_code;
}

void loop_exit(Loop *l, int code) {
        assert(l);

        l->exiting = true;
        l->exit_code = code;
}
