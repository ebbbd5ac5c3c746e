/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "dbus/bus-util.h"
#include "gateway/cubed.h"
#include "gateway/endings.h"
#include "gateway/log.h"

typedef struct Ending {
        Endings *all;
        char id[SANDBOX_ID_MAX];
        sd_bus_slot *slot;         /* the call; NULL: waits for cubed */
        struct Ending *next;
} Ending;

struct Endings {
        sd_bus *bus;
        sd_bus_slot *match;
        Ending *first;
};

static void ending_free(Ending *e) {
        Ending **at = &e->all->first;

        while (*at != e)
                at = &(*at)->next;
        *at = e->next;
        sd_bus_slot_unref(e->slot);
        free(e);
}

static void left_behind(const char *id, const char *why) {
        (void) log_full_errno(LOG_WARNING, 0, "Sandbox %s, of which no client was told, was not killed; its time-out ends it, or "
                              "'cubectl kill %s': %s", id, id, why);
}

static bool is_gone(const sd_bus_error *error) {
        return sd_bus_error_has_name(error, BUS_ERROR_NO_SUCH_SANDBOX) || sd_bus_error_has_name(error, SD_BUS_ERROR_UNKNOWN_OBJECT);
}

static int on_killed(sd_bus_message *reply, void *userdata, sd_bus_error *ret_error) {
        const sd_bus_error *error = sd_bus_message_get_error(reply);
        Ending *e = userdata;

        e->slot = sd_bus_slot_unref(e->slot);
        if (error && cubed_is_away(error))
                return 1;
        if (error && !is_gone(error))
                left_behind(e->id, client_error_text(error, 0));
        ending_free(e);
        return 1;
}

static void kill_it(Ending *e) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char path[CUBE_BUS_PATH_MAX];

        int r = sd_bus_message_new_method_call(e->all->bus, &m, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, e->id),
                                               CUBE_BUS_SANDBOX, "Kill");
        if (r >= 0)
                r = sd_bus_call_async(e->all->bus, &e->slot, m, on_killed, e, UINT64_MAX);
        if (r < 0) {
                left_behind(e->id, strerror(-r));
                ending_free(e);
        }
}

void endings_add(Endings *all, const char *sandbox) {
        Ending *e = new0(Ending, 1);

        if (!e) {
                left_behind(sandbox, strerror(ENOMEM));
                return;
        }
        e->all = all;
        (void) snprintf(e->id, sizeof(e->id), "%s", sandbox);
        e->next = all->first;
        all->first = e;
        kill_it(e);
}

static int on_owner(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name, *before, *after;
        Endings *all = userdata;

        if (sd_bus_message_read(m, "sss", &name, &before, &after) < 0 || !*after)
                return 0;
        for (Ending *e = all->first, *next; e; e = next) {
                next = e->next;
                if (!e->slot)
                        kill_it(e);
        }
        return 0;
}

int endings_new(sd_bus *bus, Endings **ret) {
        Endings *all = new0(Endings, 1);
        if (!all)
                return -ENOMEM;

        all->bus = sd_bus_ref(bus);
        int r = sd_bus_add_match(bus, &all->match, CUBED_OWNER_MATCH, on_owner, all);
        if (r < 0) {
                endings_free(all);
                return r;
        }
        *ret = all;
        return 0;
}

Endings *endings_free(Endings *all) {
        if (!all)
                return NULL;

        while (all->first) {
                if (!all->first->slot)
                        left_behind(all->first->id, "cubed did not come back");
                ending_free(all->first);
        }
        sd_bus_slot_unref(all->match);
        sd_bus_unref(all->bus);
        free(all);
        return NULL;
}
