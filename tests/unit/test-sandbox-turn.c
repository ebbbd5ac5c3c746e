/* SPDX-License-Identifier: Apache-2.0 */

/* Turns of a sandbox: one at a time, in order, none lost. */

#include "daemon/manager-private.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"
#include "tests/unit/test.h"

static struct ManagerPrivate priv;
static Manager manager = { .priv = &priv, .config.runtime_directory = (char *) "/tmp" };

typedef struct Work {
        Turn turn;
        unsigned n_started, n_dropped, order;
        bool ends_at_once;
} Work;

static unsigned n_order;

static void on_start(Sandbox *s, Turn *t) {
        Work *w = (Work *) t;

        w->n_started++;
        w->order = ++n_order;
        if (w->ends_at_once)
                sandbox_end_turn(s, t);
}

static void on_drop(Sandbox *s, Turn *t, const sd_bus_error *error) {
        ((Work *) t)->n_dropped++;
        assert_true(sd_bus_error_is_set(error));
}

static Work make_work(void) {
        return (Work) { .turn = { .start = on_start, .drop = on_drop } };
}

static Sandbox *setup(void) {
        Sandbox *s;

        if (!manager.event)
                assert_ok(sd_event_new(&manager.event));
        assert_ok(sandbox_new(&manager, "abcdefghijklmnop", &s));
        n_order = 0;
        return s;
}

static void turn(void) {
        while (sd_event_run(manager.event, 0) > 0)
                ;
}

TEST(while_they_are_held_none_starts_and_one_can_go_before_all) {
        Work a = make_work(), b = make_work(), first = make_work();
        Sandbox *s = setup();

        sandbox_hold_turns(s);
        assert_ok(sandbox_take_turn(s, &a.turn, NULL));
        assert_ok(sandbox_take_turn(s, &b.turn, NULL));
        turn();
        assert_ok(sandbox_take_first_turn(s, &first.turn));
        turn();
        assert_true(a.n_started == 0 && b.n_started == 0 && first.n_started == 0);
        assert_ok(sandbox_let_turns_go(s));
        turn();
        assert_true(first.n_started == 1 && a.n_started == 0);
        a.ends_at_once = b.ends_at_once = true;
        sandbox_end_turn(s, &first.turn);
        turn();
        assert_true(a.order == 2 && b.order == 3);
        sandbox_free(s);
}

TEST(they_start_one_after_the_other) {
        Work a = make_work(), b = make_work(), c = make_work();
        Sandbox *s = setup();

        assert_ok(sandbox_take_turn(s, &a.turn, NULL));
        assert_ok(sandbox_take_turn(s, &b.turn, NULL));
        assert_ok(sandbox_take_turn(s, &c.turn, NULL));
        /* Nobody is called back from within his call. */
        assert_eq(a.n_started, 0);
        turn();
        assert_true(a.n_started == 1 && b.n_started == 0);
        sandbox_end_turn(s, &a.turn);
        assert_eq(b.n_started, 0);
        b.ends_at_once = true;
        turn();
        assert_true(b.n_started == 1 && c.n_started == 1 && c.order == 3);
        sandbox_end_turn(s, &c.turn);

        assert_ok(sandbox_take_turn(s, &a.turn, NULL));
        turn();
        assert_eq(a.n_started, 2);
        sandbox_end_turn(s, &a.turn);
        sandbox_free(s);
        assert_eq(a.n_dropped + b.n_dropped + c.n_dropped, 0);
}

TEST(each_is_dropped_once_when_the_sandbox_goes) {
        Work a = make_work(), b = make_work();
        Sandbox *s = setup();

        assert_ok(sandbox_take_turn(s, &a.turn, NULL));
        assert_ok(sandbox_take_turn(s, &b.turn, NULL));
        turn();
        sandbox_free(s);
        turn();
        assert_true(a.n_started == 1 && a.n_dropped == 1);
        assert_true(b.n_started == 0 && b.n_dropped == 1);
}

TEST(so_many_and_no_more) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Work works[TURNS_MAX + 1];
        Sandbox *s = setup();

        for (unsigned i = 0; i <= TURNS_MAX; i++)
                works[i] = make_work();
        for (unsigned i = 0; i < TURNS_MAX; i++)
                assert_ok(sandbox_take_turn(s, &works[i].turn, NULL));
        assert_true(sandbox_take_turn(s, &works[TURNS_MAX].turn, &e) < 0);
        assert_streq(e.name, BUS_ERROR_BUSY);
        sandbox_free(s);
        assert_true(works[0].n_dropped == 1 && works[TURNS_MAX].n_dropped == 0);
        manager.event = sd_event_unref(manager.event);
}
