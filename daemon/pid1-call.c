/* SPDX-License-Identifier: Apache-2.0 */

#include "base/clock.h"
#include "daemon/log.h"
#include "daemon/pid1-call.h"

#define AGAIN_USEC (100 * USEC_PER_MSEC)
/* From when it went away. */
#define AGAIN_FOR_USEC (10 * USEC_PER_SEC)
/* An emulated host that was busy took nine seconds to start a scope. */
#define ANSWER_USEC (120 * USEC_PER_SEC)

struct Pid1Call {
        sd_bus_message *message;   /* sealed: what is sent are copies */
        sd_bus_message_handler_t reply;
        void *userdata;
        sd_bus_slot *slot;         /* set while it is not answered */
        sd_event_source *timer;    /* set while PID 1 is away */
        uint64_t sent_usec;        /* CLOCK_MONOTONIC */
        uint64_t until_usec;       /* as well, once it went away */
        bool noted;
};

/* The bus says so itself, or tried to start it. */
static bool went_away(const sd_bus_error *e) {
        return sd_bus_error_has_names(e, SD_BUS_ERROR_NO_REPLY, SD_BUS_ERROR_SERVICE_UNKNOWN, SD_BUS_ERROR_NAME_HAS_NO_OWNER) ||
               startswith(strempty(e->name), "org.freedesktop.DBus.Error.Spawn.");
}

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);

static int send_copy(Pid1Call *c) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        sd_bus *bus = sd_bus_message_get_bus(c->message);

        int r = sd_bus_message_new_method_call(bus, &m, sd_bus_message_get_destination(c->message), sd_bus_message_get_path(c->message),
                                               sd_bus_message_get_interface(c->message), sd_bus_message_get_member(c->message));
        if (r >= 0)
                r = sd_bus_message_rewind(c->message, true);
        if (r >= 0)
                r = sd_bus_message_copy(m, c->message, true);
        c->sent_usec = now_usec();
        if (r >= 0)
                r = sd_bus_call_async(bus, &c->slot, m, on_reply, c, ANSWER_USEC);
        return r;
}

static int ask_again_later(Pid1Call *c);

/* As if PID 1 had answered so. */
static int make_answer(const Pid1Call *c, int error, sd_bus_message **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int r = sd_bus_message_new_method_errno(c->message, &m, error, NULL);
        if (r >= 0)
                r = sd_bus_message_seal(m, 1, 0);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(m);
        return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *answer = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Pid1Call *c = userdata;

        c->timer = sd_event_source_disable_unref(c->timer);
        int r = send_copy(c);
        if (r >= 0)
                return 0;
        log_error_errno(r, "Failed to ask PID 1 for %s again: %m", sd_bus_message_get_member(c->message));
        if (make_answer(c, r, &answer) < 0)
                return ask_again_later(c);
        return c->reply(answer, c->userdata, &e);
}

static int ask_again_later(Pid1Call *c) {
        return sd_event_add_time_relative(sd_bus_get_event(sd_bus_message_get_bus(c->message)), &c->timer, CLOCK_MONOTONIC, AGAIN_USEC, 0,
                                          on_timer, c);
}

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Pid1Call *c = userdata;
        const sd_bus_error *e = sd_bus_message_get_error(m);

        c->slot = sd_bus_slot_unref(c->slot);
        /* One that hangs, of which our own end of the bus says the same, is not asked twice. */
        uint64_t now = now_usec();
        if (c->until_usec == 0)
                c->until_usec = now + AGAIN_FOR_USEC;
        if (!e || !went_away(e) || now >= c->sent_usec + ANSWER_USEC || now >= c->until_usec)
                return c->reply(m, c->userdata, ret_error);

        if (!c->noted)
                log_info("PID 1 went away before it answered %s, asking again", sd_bus_message_get_member(c->message));
        c->noted = true;
        int r = ask_again_later(c);
        return r < 0 ? c->reply(m, c->userdata, ret_error) : 0;
}

int pid1_call_again(Pid1Call *c) {
        assert(!c->slot && !c->timer);

        c->until_usec = 0;
        return send_copy(c);
}

int pid1_call(sd_bus_message *m, sd_bus_message_handler_t reply, void *userdata, Pid1Call **ret) {
        _cleanup_(pid1_call_freep) Pid1Call *c = new0(Pid1Call, 1);
        if (!c)
                return -ENOMEM;

        *c = (Pid1Call) { .message = sd_bus_message_ref(m), .reply = reply, .userdata = userdata };
        int r = sd_bus_message_seal(m, 1, 0);
        if (r >= 0)
                r = pid1_call_again(c);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(c);
        return 0;
}

Pid1Call *pid1_call_free(Pid1Call *c) {
        if (!c)
                return NULL;

        sd_bus_slot_unref(c->slot);
        sd_event_source_disable_unref(c->timer);
        sd_bus_message_unref(c->message);
        free(c);
        return NULL;
}
