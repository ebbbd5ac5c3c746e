/* SPDX-License-Identifier: Apache-2.0 */

/* Resume, for one or for many at once: what each is promised holds for all. A lifetime that is asked for is never made shorter
 * by another's, and who may wait comes behind a pause that is under way. */

#include "base/clock.h"
#include "daemon/audit.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"

typedef struct Resuming {
        Manager *manager;
        char id[sizeof(((Sandbox *) NULL)->id)];
        sd_bus_message *call;
        sd_event_source *later;    /* until the pause before it is over in all respects */
        bool memory;
        uint64_t timeout_usec;     /* 0: as it is */
} Resuming;

static Resuming *resuming_free(Resuming *x) {
        sd_event_source_disable_unref(x->later);
        sd_bus_message_unref(x->call);
        free(x);
        return NULL;
}

/* Of one that runs. */
static int extend(Sandbox *s, uint64_t timeout_usec, sd_bus_error *error) {
        uint64_t now = wall_usec(), left = s->deadline_usec > now ? s->deadline_usec - now : 0;

        return left < timeout_usec ? sandbox_set_timeout(s, timeout_usec, error) : 0;
}

static void on_resumed(Sandbox *s, const sd_bus_error *error, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Resuming *x = userdata;

        if (sd_bus_error_is_set(error))
                (void) sd_bus_error_copy(&e, error);
        else if (extend(s, x->timeout_usec, &e) >= 0)
                (void) sd_bus_reply_method_return(x->call, NULL);
        if (sd_bus_error_is_set(&e))
                bus_reply_error(x->call, &e, 0);
        resuming_free(x);
}

/* Takes x, unless it fails. */
static int begin(Sandbox *s, Resuming *x, sd_bus_error *error) {
        bool kept = s->state == SANDBOX_PAUSED || s->state == SANDBOX_FAILED;

        /* It counts from when it runs. */
        int r = kept && x->timeout_usec > 0 ? sandbox_set_timeout(s, x->timeout_usec, error) : 0;
        return r < 0 ? r : sandbox_resume(s, x->memory, on_resumed, x, error);
}

static int on_later(sd_event_source *source, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Resuming *x = userdata;
        Sandbox *s = manager_find_sandbox(x->manager, x->id);

        int r = s ? begin(s, x, &e)
                  : sd_bus_error_setf(&e, BUS_ERROR_NO_SUCH_SANDBOX, "Sandbox %s ended while it was being paused", x->id);
        if (r < 0) {
                bus_reply_error(x->call, &e, r);
                resuming_free(x);
        }
        return 0;
}

/* However the pause ended: what the sandbox is by then decides. */
static void on_paused(Sandbox *s, const sd_bus_error *error, void *userdata) {
        Resuming *x = userdata;

        int r = sd_event_add_defer(x->manager->event, &x->later, on_later, x);
        if (r >= 0)
                return;
        bus_reply_error(x->call, NULL, r);
        resuming_free(x);
}

int bus_method_resume(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        bool memory = true, wait = false;
        uint64_t timeout_usec = 0;
        Sandbox *s = userdata;
        uid_t actor;
        const BusOption options[] = {
                { "memory", BUS_OPTION_BOOL, &memory, 0 },
                { "wait", BUS_OPTION_BOOL, &wait, 0 },
                { "timeout", BUS_OPTION_U64, &timeout_usec, BUS_OPTION_NONZERO },
        };

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r < 0)
                return r;
        audit_asked(s->manager->audit, s, actor, "resume");

        Resuming *x = new0(Resuming, 1);
        if (!x)
                return -ENOMEM;
        *x = (Resuming) { .manager = s->manager, .call = sd_bus_message_ref(m), .memory = memory, .timeout_usec = timeout_usec };
        memcpy(x->id, s->id, sizeof(x->id));
        /* Without memory this joins the pause, whatever it keeps. */
        r = wait && s->state == SANDBOX_PAUSING ? sandbox_pause(s, false, on_paused, x, error) : begin(s, x, error);
        if (r < 0) {
                resuming_free(x);
                return r;
        }
        return 1;
}
