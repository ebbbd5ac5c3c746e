/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "test.h"
#include "vmm/loop.h"

typedef struct Probe {
        Loop *loop;
        LoopSource *sources[3];
        unsigned calls;
        unsigned stop_after;
} Probe;

static int count_and_exit(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Probe *p = userdata;

        if (++p->calls == p->stop_after)
                loop_exit(p->loop, 7);
        return 0;
}

static int fail(LoopSource *s, int fd, uint32_t events, void *userdata) {
        return -EBADMSG;
}

TEST(fd_events_come_until_exit) {
        Probe p = { .stop_after = 3 };
        _cleanup_close_ int fd = eventfd(1, EFD_CLOEXEC|EFD_NONBLOCK);

        assert_ok(loop_new(&p.loop));
        assert_ok(loop_add_fd(p.loop, fd, EPOLLIN, count_and_exit, &p, &p.sources[0]));
        assert_eq(loop_run(p.loop), 7);
        assert_eq(p.calls, 3);

        /* Nothing is left over from the first run. */
        p.stop_after = 4;
        assert_eq(loop_run(p.loop), 7);
        loop_free(p.loop);
}

TEST(a_handlers_error_ends_the_loop) {
        Probe p = {};
        _cleanup_close_ int fd = eventfd(1, EFD_CLOEXEC|EFD_NONBLOCK);

        assert_ok(loop_new(&p.loop));
        assert_ok(loop_add_fd(p.loop, fd, EPOLLIN, fail, &p, &p.sources[0]));
        assert_eq(loop_run(p.loop), -EBADMSG);
        p.sources[0] = loop_remove(p.sources[0]);
        loop_free(p.loop);
}

TEST(what_epoll_refuses_is_refused) {
        Probe p = {};
        _cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY|O_CLOEXEC);

        assert_ok(loop_new(&p.loop));
        assert_eq(loop_add_fd(p.loop, fd, EPOLLIN, fail, &p, &p.sources[0]), -EPERM);
        loop_free(p.loop);
}

TEST(timers_come_in_time_and_once) {
        Probe p = { .stop_after = 1 };

        assert_ok(loop_new(&p.loop));
        assert_ok(loop_add_timer(p.loop, count_and_exit, &p, &p.sources[0]));
        assert_ok(loop_add_timer(p.loop, fail, &p, &p.sources[1]));
        uint64_t begin = now_usec();
        assert_ok(loop_timer_set(p.sources[0], 20 * USEC_PER_MSEC));
        assert_ok(loop_timer_set(p.sources[1], 1));
        assert_ok(loop_timer_set(p.sources[1], 0));

        assert_eq(loop_run(p.loop), 7);
        assert_true(now_usec() - begin >= 20 * USEC_PER_MSEC);
        assert_eq(p.calls, 1);

        /* An infinite time is not one that wraps. */
        assert_ok(loop_timer_set(p.sources[1], UINT64_MAX));
        p.stop_after = 2;
        assert_ok(loop_timer_set(p.sources[0], 1000));
        assert_eq(loop_run(p.loop), 7);
        loop_free(p.loop);
}

static int set_again(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Probe *p = userdata;

        if (++p->calls == 5)
                loop_exit(p->loop, 0);
        return loop_timer_set(s, 1);
}

TEST(a_timer_may_set_itself) {
        Probe p = {};

        assert_ok(loop_new(&p.loop));
        assert_ok(loop_add_timer(p.loop, set_again, &p, &p.sources[0]));
        assert_ok(loop_timer_set(p.sources[0], 1));
        assert_eq(loop_run(p.loop), 0);
        assert_eq(p.calls, 5);
        loop_free(p.loop);
}

/* Whichever is called first removes all, itself included: the others must not be called. */
static int remove_all(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Probe *p = userdata;

        p->calls++;
        for (size_t i = 0; i < ELEMENTSOF(p->sources); i++)
                p->sources[i] = loop_remove(p->sources[i]);
        loop_exit(p->loop, 0);
        return 0;
}

TEST(sources_may_be_removed_by_any_handler) {
        Probe p = {};
        _cleanup_close_ int a = eventfd(1, EFD_CLOEXEC|EFD_NONBLOCK), b = eventfd(1,
                                                                                  EFD_CLOEXEC|EFD_NONBLOCK);

        assert_ok(loop_new(&p.loop));
        assert_ok(loop_add_fd(p.loop, a, EPOLLIN, remove_all, &p, &p.sources[0]));
        assert_ok(loop_add_fd(p.loop, b, EPOLLIN, remove_all, &p, &p.sources[1]));
        assert_ok(loop_add_timer(p.loop, remove_all, &p, &p.sources[2]));
        assert_ok(loop_timer_set(p.sources[2], 1));
        assert_eq(loop_run(p.loop), 0);
        assert_eq(p.calls, 1);
        loop_free(p.loop);
}

static int stop_listening(LoopSource *s, int fd, uint32_t events, void *userdata) {
        Probe *p = userdata;

        p->calls++;
        return loop_set_events(s, 0);
}

TEST(events_can_be_turned_off) {
        Probe p = { .stop_after = 2 };
        _cleanup_close_ int fd = eventfd(1, EFD_CLOEXEC|EFD_NONBLOCK);

        assert_ok(loop_new(&p.loop));
        assert_ok(loop_add_fd(p.loop, fd, EPOLLIN, stop_listening, &p, &p.sources[0]));
        assert_ok(loop_add_timer(p.loop, count_and_exit, &p, &p.sources[1]));
        assert_ok(loop_timer_set(p.sources[1], 5000));
        assert_eq(loop_run(p.loop), 7);
        assert_eq(p.calls, 2);
        loop_free(p.loop);
}
