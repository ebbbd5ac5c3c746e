/* SPDX-License-Identifier: Apache-2.0 */
#include "dbus/bus-util.h"
#include "gateway/bus-json.h"
#include "gateway/cubed.h"
#include "gateway/ingress-link.h"
#include "gateway/ingress-route.h"
#include "gateway/ingress.h"
#include "gateway/log.h"

#define PROPERTIES_CHANGED                                                                                              \
        "type='signal',sender='" CUBE_BUS_NAME "',path_namespace='" CUBE_BUS_PATH_SANDBOX "',"                          \
        "interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',arg0='" CUBE_BUS_SANDBOX "'"

/* For cubed to say better what it could not say. */
#define AGAIN_USEC (5 * USEC_PER_SEC)

typedef struct Place {
        char id[SANDBOX_ID_MAX];
        json_object *properties;   /* those that a route is made of */
        char route[ROUTE_MAX];     /* as haproxy has it; "": none */
        bool stale;                /* cubed was asked anew, and has not told of it yet */
} Place;

struct Ingress {
        Gateway *gateway;
        IngressLink *link;
        sd_bus_slot *matches[4], *asking;
        sd_event_source *again;    /* when it is asked once more */
        Place **places;            /* by id */
        size_t n_places, room;
        bool known;                /* all of them were told once */
        Request *waiting;
};

/* The places. */

static Place *place_free(Place *p) {
        json_object_put(p->properties);
        explicit_bzero(p, sizeof(*p));
        free(p);
        return NULL;
}

/* Where it is, or belongs. */
static bool place_find(const Ingress *in, const char *id, size_t *ret) {
        size_t low = 0, high = in->n_places;

        while (low < high) {
                size_t middle = low + (high - low) / 2;
                int c = strcmp(in->places[middle]->id, id);
                if (c == 0) {
                        *ret = middle;
                        return true;
                }
                if (c < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        *ret = low;
        return false;
}

static Place *place_add(Ingress *in, size_t at, const char *id) {
        if (in->n_places == in->room) {
                size_t room = MAX(in->room * 2, (size_t) 64);
                Place **grown = reallocarray(in->places, room, sizeof(Place *));
                if (!grown)
                        return NULL;
                in->places = grown;
                in->room = room;
        }
        Place *p = new0(Place, 1);
        if (!p)
                return NULL;
        strcpy(p->id, id);
        memmove(in->places + at + 1, in->places + at, (in->n_places - at) * sizeof(Place *));
        in->places[at] = p;
        in->n_places++;
        return p;
}

static void place_remove(Ingress *in, size_t at) {
        Place *p = in->places[at];

        if (*p->route)
                ingress_link_remove(in->link, p->id);
        memmove(in->places + at, in->places + at + 1, (--in->n_places - at) * sizeof(Place *));
        place_free(p);
}

static void place_route(Ingress *in, Place *p) {
        char route[ROUTE_MAX] = "";

        if (!route_format(p->properties, in->gateway->uid, &in->gateway->host_key, route))
                *route = 0;
        if (!streq(route, p->route)) {
                if (!*route)
                        ingress_link_remove(in->link, p->id);
                else if (!*p->route)
                        ingress_link_add(in->link, p->id, route);
                else
                        ingress_link_change(in->link, p->id, route);
                strcpy(p->route, route);
        }
        explicit_bzero(route, sizeof(route));
}

/* What cubed cannot be heard saying is asked for. */
static void ask(Ingress *in);

static int place_take(Place *p, json_object *from) {
        static const char *const names[] = { "Id", "Owner", "State", "NetworkAddress", "Labels", "AutoResume", "Parked" };

        if (!p->properties)
                p->properties = json_object_new_object();
        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                json_object *v = info_get(from, names[i]);
                if (v && json_object_object_add(p->properties, names[i], json_object_get(v)) < 0) {
                        json_object_put(v);
                        return -ENOMEM;
                }
        }
        return p->properties ? 0 : -ENOMEM;
}

/* whole: all properties, of one that may be new. */
static int learn(Ingress *in, const char *id, json_object *properties, bool whole) {
        size_t at;

        if (!*id || strlen(id) >= SANDBOX_ID_MAX)
                return -EBADMSG;
        bool found = place_find(in, id, &at);
        if (!found && !whole)
                return 0;
        Place *p = found ? in->places[at] : place_add(in, at, id);
        if (!p)
                return -ENOMEM;
        p->stale = false;
        int r = place_take(p, properties);
        if (r >= 0)
                place_route(in, p);
        return r;
}

/* From cubed. */

static void learn_failed(Ingress *in, int r) {
        (void) log_full_errno(LOG_WARNING, r, "What cubed says of a sandbox could not be followed, all of them are asked for: %m");
        ask(in);
}

static int on_added(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        json_object *list = json_object_new_array(), *p;
        Ingress *in = userdata;

        int r = list ? sd_bus_message_skip(m, "o") : -ENOMEM;
        if (r >= 0)
                r = bus_object_to_json(m, CUBE_BUS_SANDBOX, list);
        p = r >= 0 && json_object_array_length(list) > 0 ? json_object_array_get_idx(list, 0) : NULL;
        if (p)
                r = learn(in, info_string(p, "Id"), p, true);
        json_object_put(list);
        if (r < 0)
                learn_failed(in, r);
        return 0;
}

static int on_changed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *id = bus_path_id(sd_bus_message_get_path(m), CUBE_BUS_PATH_SANDBOX);
        json_object *p = NULL;
        Ingress *in = userdata;

        if (!id)
                return 0;
        int r = sd_bus_message_skip(m, "s");
        if (r >= 0)
                r = bus_to_json(m, &p);
        if (r >= 0)
                r = learn(in, id, p, false);
        json_object_put(p);
        if (r < 0)
                learn_failed(in, r);
        return 0;
}

static int on_removed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Ingress *in = userdata;
        const char *path, *id;
        size_t at;

        if (sd_bus_message_read_basic(m, 'o', &path) > 0 && (id = bus_path_id(path, CUBE_BUS_PATH_SANDBOX)) &&
            place_find(in, id, &at))
                place_remove(in, at);
        return 0;
}

static int take_all(Ingress *in, sd_bus_message *reply) {
        json_object *all = json_object_new_array();

        int r = all ? bus_objects_to_json(reply, CUBE_BUS_SANDBOX, all) : -ENOMEM;
        for (size_t i = 0; r >= 0 && i < in->n_places; i++)
                in->places[i]->stale = true;
        for (size_t i = 0; r >= 0 && i < json_object_array_length(all); i++) {
                json_object *p = json_object_array_get_idx(all, i);
                r = learn(in, info_string(p, "Id"), p, true);
        }
        json_object_put(all);
        for (size_t i = in->n_places; r >= 0 && i-- > 0;)
                if (in->places[i]->stale)
                        place_remove(in, i);
        return r;
}

static int on_again(sd_event_source *source, uint64_t usec, void *userdata) {
        ask(userdata);
        return 0;
}

/* What is known is as it was, and haproxy that was told nothing yet waits. */
static void ask_failed(Ingress *in, int r, const char *why) {
        (void) log_full_errno(LOG_ERR, 0, "The sandboxes could not be asked for, they may not be reachable; it is tried again: %s",
                              why ?: strerror(-r));
        in->again = sd_event_source_disable_unref(in->again);
        r = sd_event_add_time_relative(in->gateway->event, &in->again, CLOCK_MONOTONIC, AGAIN_USEC, 0, on_again, in);
        if (r < 0)
                (void) log_full_errno(LOG_ERR, r, "It can't be tried again: %m");
}

static int on_all(sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(reply);
        Ingress *in = userdata;

        in->asking = sd_bus_slot_unref(in->asking);
        /* Without a cubed there is nothing to be told: what it left runs on, and is reached as it was. The next one is seen to come. */
        if (e && cubed_is_away(e))
                return 0;
        int r = e ? -EIO : take_all(in, reply);
        if (r >= 0 && !in->known)
                r = ingress_link_start(in->link);
        if (r < 0)
                ask_failed(in, r, e ? e->message : NULL);
        in->known |= r >= 0;
        return 0;
}

static void ask(Ingress *in) {
        _cleanup_bus_message_ sd_bus_message *m = NULL;

        in->asking = sd_bus_slot_unref(in->asking);
        in->again = sd_event_source_disable_unref(in->again);
        int r = sd_bus_message_new_method_call(in->gateway->bus, &m, CUBE_BUS_NAME, CUBE_BUS_PATH,
                                               "org.freedesktop.DBus.ObjectManager", "GetManagedObjects");
        /* It begins by itself, or when a client wants something of it. */
        if (r >= 0)
                r = sd_bus_message_set_auto_start(m, false);
        if (r >= 0)
                r = sd_bus_call_async(in->gateway->bus, &in->asking, m, on_all, in, UINT64_MAX);
        if (r < 0)
                ask_failed(in, r, NULL);
}

static int on_owner(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name, *before, *after;
        Ingress *in = userdata;

        if (sd_bus_message_read(m, "sss", &name, &before, &after) >= 0 && *after)
                ask(in);
        return 0;
}

/* To haproxy. */

static void fill(IngressLink *l, void *userdata) {
        Ingress *in = userdata;

        for (size_t i = 0; i < in->n_places; i++)
                if (*in->places[i]->route)
                        ingress_link_add(l, in->places[i]->id, in->places[i]->route);
}

static void moved(IngressLink *l, void *userdata) {
        Ingress *in = userdata;

        for (Request **at = &in->waiting, *r; (r = *at);)
                if (ingress_link_reached(l, r->ingress_point)) {
                        *at = r->next_waiting;
                        request_release(r);
                } else
                        at = &r->next_waiting;
}

bool ingress_holds(Ingress *in, Request *r) {
        r->ingress_point = ingress_link_now(in->link);
        if (ingress_link_reached(in->link, r->ingress_point))
                return false;
        r->next_waiting = in->waiting;
        in->waiting = r;
        return true;
}

static int listen_to_cubed(Ingress *in) {
        static const char manager[] = "org.freedesktop.DBus.ObjectManager";
        sd_bus *bus = in->gateway->bus;

        int r = sd_bus_match_signal(bus, &in->matches[0], CUBE_BUS_NAME, CUBE_BUS_PATH, manager, "InterfacesAdded", on_added, in);
        if (r >= 0)
                r = sd_bus_match_signal(bus, &in->matches[1], CUBE_BUS_NAME, CUBE_BUS_PATH, manager, "InterfacesRemoved",
                                        on_removed, in);
        if (r >= 0)
                r = sd_bus_add_match(bus, &in->matches[2], PROPERTIES_CHANGED, on_changed, in);
        if (r >= 0)
                r = sd_bus_add_match(bus, &in->matches[3], CUBED_OWNER_MATCH, on_owner, in);
        return r;
}

int ingress_new(Gateway *g, const char *control, Ingress **ret) {
        static const IngressLinkHandlers handlers = { .fill = fill, .moved = moved };
        Ingress *in = new0(Ingress, 1);
        if (!in)
                return -ENOMEM;

        in->gateway = g;
        int r = ingress_link_new(g->event, control, &handlers, in, &in->link);
        if (r >= 0)
                r = listen_to_cubed(in);
        if (r < 0) {
                ingress_free(in);
                return r;
        }
        ask(in);
        *ret = in;
        return 0;
}

Ingress *ingress_free(Ingress *in) {
        if (!in)
                return NULL;

        for (size_t i = 0; i < ELEMENTSOF(in->matches); i++)
                sd_bus_slot_unref(in->matches[i]);
        sd_bus_slot_unref(in->asking);
        sd_event_source_disable_unref(in->again);
        ingress_link_free(in->link);
        for (size_t i = 0; i < in->n_places; i++)
                place_free(in->places[i]);
        free(in->places);
        free(in);
        return NULL;
}
