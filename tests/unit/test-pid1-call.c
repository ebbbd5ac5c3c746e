/* SPDX-License-Identifier: Apache-2.0 */

/* Calls to a PID 1 that goes away before it answers: another connection, in this process, which hears what it is asked and
 * says what a bus says. */

#include <sys/socket.h>
#include <systemd/sd-event.h>
#include <systemd/sd-id128.h>

#include "daemon/pid1-call.h"
#include "test.h"

typedef struct Case {
        sd_event *event;
        sd_bus *bus, *pid1;
        Pid1Call *call;
        unsigned n_asked, n_away;  /* so often it goes away before it answers */
        unsigned n_answers;
        int error;                 /* of the last answer */
        uint32_t value;            /* in it */
        char heard[16];
        uint64_t slow_usec;        /* that it takes until it answers the first time, or goes away */
} Case;

/* Time goes by as told. */
static uint64_t later_usec;

int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts) {
        int r = __real_clock_gettime(clock, ts);

        ts->tv_sec += (time_t) (later_usec / USEC_PER_SEC);
        return r;
}

static int on_asked(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *text;
        Case *c = userdata;

        if (!sd_bus_message_is_method_call(m, PID1_MANAGER, "Try"))
                return 0;
        assert_ok(sd_bus_message_read(m, "s", &text));
        (void) snprintf(c->heard, sizeof(c->heard), "%s", text);
        if (c->n_asked == 0)
                later_usec += c->slow_usec;
        if (c->n_asked++ < c->n_away)
                return sd_bus_reply_method_errorf(m, SD_BUS_ERROR_NO_REPLY, "It went away");
        return sd_bus_reply_method_return(m, "u", 17U);
}

static int on_answer(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Case *c = userdata;

        c->n_answers++;
        c->error = sd_bus_message_get_errno(m);
        if (c->error == 0)
                assert_ok(sd_bus_message_read(m, "u", &c->value));
        c->call = pid1_call_free(c->call);
        return 0;
}

static sd_bus *connection(Case *c, int fd, bool server) {
        sd_bus *bus;
        sd_id128_t id;

        assert_ok(sd_bus_new(&bus));
        assert_ok(sd_bus_set_fd(bus, fd, fd));
        assert_ok(sd_id128_randomize(&id));
        if (server)
                assert_ok(sd_bus_set_server(bus, 1, id));
        assert_ok(sd_bus_set_anonymous(bus, 1));
        assert_ok(sd_bus_start(bus));
        assert_ok(sd_bus_attach_event(bus, c->event, 0));
        return bus;
}

static void case_init(Case *c, unsigned n_away) {
        int ends[2];

        *c = (Case) { .n_away = n_away };
        assert_ok(sd_event_new(&c->event));
        assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends));
        c->pid1 = connection(c, ends[0], true);
        c->bus = connection(c, ends[1], false);
        assert_ok(sd_bus_add_filter(c->pid1, NULL, on_asked, c));
}

static void case_done(Case *c) {
        pid1_call_free(c->call);
        sd_bus_close_unref(c->bus);
        sd_bus_close_unref(c->pid1);
        sd_event_unref(c->event);
}
#define _cleanup_case_ _cleanup_(case_done)

static void ask(Case *c) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        assert_ok(sd_bus_message_new_method_call(c->bus, &m, PID1_NAME, PID1_PATH, PID1_MANAGER, "Try"));
        assert_ok(sd_bus_message_append(m, "s", "hello"));
        assert_ok(pid1_call(m, on_answer, c, &c->call));
}

static void run_until(Case *c, const unsigned *n, unsigned value) {
        while (*n < value)
                assert_true(sd_event_run(c->event, 60 * USEC_PER_SEC) > 0);
}

TEST(an_answer_is_passed_on) {
        _cleanup_case_ Case c;

        case_init(&c, 0);
        ask(&c);
        run_until(&c, &c.n_answers, 1);
        assert_true(c.error == 0 && c.value == 17 && c.n_asked == 1);
}

TEST(who_went_away_is_asked_the_same_again) {
        _cleanup_case_ Case c;

        case_init(&c, 2);
        ask(&c);
        run_until(&c, &c.n_asked, 1);
        c.heard[0] = 0;
        run_until(&c, &c.n_answers, 1);
        assert_true(c.error == 0 && c.value == 17 && c.n_asked == 3);
        assert_streq(c.heard, "hello");
}

TEST(who_went_away_after_a_long_time_is_asked_again) {
        _cleanup_case_ Case c;

        case_init(&c, 2);
        c.slow_usec = 60 * USEC_PER_SEC;
        ask(&c);
        run_until(&c, &c.n_answers, 1);
        assert_true(c.error == 0 && c.value == 17 && c.n_asked == 3);
}

TEST(who_hangs_is_not_asked_again) {
        _cleanup_case_ Case c;

        case_init(&c, 1);
        c.slow_usec = 120 * USEC_PER_SEC;
        ask(&c);
        run_until(&c, &c.n_answers, 1);
        assert_true(c.error != 0 && c.n_asked == 1);
}

TEST(when_it_can_not_be_asked_again_that_is_the_answer) {
        _cleanup_case_ Case c;

        case_init(&c, 1);
        ask(&c);
        run_until(&c, &c.n_asked, 1);
        /* The error is on its way to us; it is what begins the wait. */
        assert_ok(sd_bus_flush(c.pid1));
        while (sd_bus_process(c.bus, NULL) > 0)
                ;
        assert_eq(c.n_answers, 0);
        sd_bus_close(c.bus);
        run_until(&c, &c.n_answers, 1);
        assert_eq(c.error, ENOTCONN);
        assert_true(!c.call && c.n_asked == 1);
}
