/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

static int on_turn(sd_event_source *source, void *userdata) {
        Sandbox *s = userdata;
        Turn *t = s->priv->turns;

        if (t && !t->started && !s->priv->turns_held) {
                t->started = true;
                t->start(s, t);
        }
        return 0;
}

static int schedule(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        if (p->turn_source)
                return sd_event_source_set_enabled(p->turn_source, SD_EVENT_ONESHOT);
        return sd_event_add_defer(s->manager->event, &p->turn_source, on_turn, s);
}

int sandbox_take_turn(Sandbox *s, Turn *t, sd_bus_error *error) {
        Turn **end = &s->priv->turns;
        unsigned n = 0;

        for (; *end; end = &(*end)->next)
                n++;
        if (n >= TURNS_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Sandbox %s has too many snapshots or changes under way; try again later",
                                         s->id);
        int r = n == 0 ? schedule(s) : 0;
        if (r < 0)
                return sd_bus_error_set_errno(error, r);
        t->started = false;
        t->next = NULL;
        *end = t;
        return 0;
}

int sandbox_take_first_turn(Sandbox *s, Turn *t) {
        struct SandboxPrivate *p = s->priv;

        assert(!p->turns || !p->turns->started);
        int r = schedule(s);
        if (r < 0)
                return r;
        t->started = false;
        t->next = p->turns;
        p->turns = t;
        return 0;
}

void sandbox_hold_turns(Sandbox *s) {
        s->priv->turns_held = true;
}

int sandbox_let_turns_go(Sandbox *s) {
        s->priv->turns_held = false;
        return s->priv->turns ? schedule(s) : 0;
}

void sandbox_end_turn(Sandbox *s, Turn *t) {
        assert(s->priv->turns == t);

        s->priv->turns = t->next;
        if (t->next)
                (void) schedule(s);
}

void sandbox_drop_turns(Sandbox *s, const sd_bus_error *error) {
        for (Turn *t; (t = s->priv->turns);) {
                s->priv->turns = t->next;
                t->drop(s, t, error);
        }
}
