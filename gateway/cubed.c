/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/bus-json.h"
#include "gateway/cubed.h"
#include "gateway/log.h"

#define OUTSTANDING_MAX 100U
/* Of those for which cubed asks polkit: it has eight questions of a client open at most, and denies what comes beyond. */
#define ASKING_MAX 6U
/* One tenant's of them: a create takes long, and the next tenant's begins at once. */
#define ASKING_SHARE_MAX 4U
/* How long calls wait for a cubed that has left the bus: longer than it is away when it is restarted. */
#define AWAY_USEC (10 * USEC_PER_SEC)

struct CubedCall {
        Cubed *cubed;
        Request *request;
        sd_bus_message *message;
        sd_bus_slot *slot;         /* set once it is sent */
        CubedDone done;
        bool asks;                 /* polkit */
        bool again;                /* it will be, or was, sent for the second time */
        CubedCall *next;           /* waits behind this one */
};

struct Cubed {
        sd_bus *bus;
        sd_bus_slot *match;
        sd_event_source *away_timer;
        bool was_there;            /* now, or less than AWAY_USEC ago, as far as the bus has said so */
        bool away;                 /* was_there, and it left the bus */
        CubedCall *first;          /* waiting for their turn */
        CubedCall *held;           /* waiting for cubed to come back */
        unsigned n_outstanding, n_asking;
        uint64_t turns;            /* that were had */
};

static void count(const CubedCall *call, int n) {
        Share *s = call->request->share;
        unsigned by = (unsigned) n;

        call->cubed->n_outstanding += by;
        s->n_calls += by;
        if (!call->asks)
                return;
        call->cubed->n_asking += by;
        s->n_asking += by;
}

static void take_out(CubedCall **list, const CubedCall *call) {
        while (*list && *list != call)
                list = &(*list)->next;
        if (*list)
                *list = call->next;
}

static void add_last(CubedCall **list, CubedCall *call) {
        while (*list)
                list = &(*list)->next;
        call->next = NULL;
        *list = call;
}

static void call_free(CubedCall *call) {
        take_out(&call->cubed->first, call);
        take_out(&call->cubed->held, call);
        if (call->slot)
                count(call, -1);
        sd_bus_slot_unref(call->slot);
        sd_bus_message_unref(call->message);
        free(call);
}

static void send_next(Cubed *c);

/* What changes nothing can be asked of the next cubed. */
static bool only_reads(sd_bus_message *m) {
        static const char *const members[] = { "GetAll", "FindSandboxes", "FindTemplates", "ListSnapshots", "ListTemplates" };
        const char *member = strempty(sd_bus_message_get_member(m));

        for (size_t i = 0; i < ELEMENTSOF(members); i++)
                if (streq(member, members[i]))
                        return true;
        return false;
}

/* One that found no cubed was not begun. */
static bool may_be_sent_again(const CubedCall *call, const sd_bus_error *error) {
        if (call->again || !cubed_is_away(error))
                return false;
        return !sd_bus_error_has_name(error, SD_BUS_ERROR_NO_REPLY) || only_reads(call->message);
}

static void send_again(CubedCall *call) {
        Cubed *c = call->cubed;

        count(call, -1);
        call->slot = sd_bus_slot_unref(call->slot);
        call->again = true;
        add_last(c->away ? &c->held : &c->first, call);
}

static int on_reply(sd_bus_message *reply, void *userdata, sd_bus_error *ret_error) {
        CubedCall *call = userdata;
        Request *r = call->request;
        CubedDone done = call->done;
        Cubed *c = call->cubed;
        const sd_bus_error *error = sd_bus_message_get_error(reply);

        if (error && c->was_there && may_be_sent_again(call, error))
                send_again(call);
        else {
                r->call = NULL;
                call_free(call);
                done(r, error ? NULL : reply, error);
        }
        send_next(c);
        return 1;
}

static void call_failed(CubedCall *call, int k) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        Request *r = call->request;
        CubedDone done = call->done;

        (void) sd_bus_error_set_errno(&error, k);
        r->call = NULL;
        call_free(call);
        done(r, NULL, &error);
}

static bool may_be_sent(const Cubed *c, const CubedCall *call) {
        const Share *s = call->request->share;

        if (call->asks && (c->n_asking >= ASKING_MAX || s->n_asking >= ASKING_SHARE_MAX))
                return false;
        return share_may_take(s->n_calls, c->n_outstanding, OUTSTANDING_MAX, 1);
}

/* Of the tenant that waits longest for a turn the first one, taken out of the queue. */
static CubedCall *take_next(Cubed *c) {
        CubedCall **best = NULL, *call;

        for (CubedCall **at = &c->first; *at; at = &(*at)->next)
                if (may_be_sent(c, *at) && (!best || (*at)->request->share->last_turn < (*best)->request->share->last_turn))
                        best = at;
        if (!best)
                return NULL;
        call = *best;
        *best = call->next;
        call->next = NULL;
        call->request->share->last_turn = ++c->turns;
        return call;
}

static void send_next(Cubed *c) {
        CubedCall *call;

        while ((call = take_next(c))) {
                /* cubed answers every call, or leaves the bus, which ends them all. */
                int k = sd_bus_call_async(c->bus, &call->slot, call->message, on_reply, call, UINT64_MAX);
                if (k < 0) {
                        call_failed(call, k);
                        continue;
                }
                count(call, 1);
        }
}

int cubed_message(Request *r, const char *path, const char *interface, const char *method, sd_bus_message **ret) {
        return sd_bus_message_new_method_call(r->gateway->bus, ret, CUBE_BUS_NAME, path, interface, method);
}

int cubed_message_sandbox(Request *r, const char *method, sd_bus_message **ret) {
        char path[CUBE_BUS_PATH_MAX];

        return cubed_message(r, client_path(path, CUBE_BUS_PATH_SANDBOX, r->sandbox_id), CUBE_BUS_SANDBOX, method, ret);
}

/* It comes and goes. */

static void fail_held(Cubed *c) {
        static const sd_bus_error error = SD_BUS_ERROR_MAKE_CONST(SD_BUS_ERROR_NAME_HAS_NO_OWNER, "");
        CubedCall *call;

        while ((call = c->held)) {
                Request *r = call->request;
                CubedDone done = call->done;

                r->call = NULL;
                call_free(call);
                done(r, NULL, &error);
        }
}

static int on_away_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Cubed *c = userdata;

        c->was_there = c->away = false;
        fail_held(c);
        return 0;
}

static int left(Cubed *c) {
        c->was_there = c->away = true;
        int r = sd_event_source_set_time_relative(c->away_timer, AWAY_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(c->away_timer, SD_EVENT_ONESHOT);
}

static int came(Cubed *c) {
        CubedCall *call;

        c->was_there = true;
        c->away = false;
        while ((call = c->held)) {
                c->held = call->next;
                add_last(&c->first, call);
        }
        send_next(c);
        return sd_event_source_set_enabled(c->away_timer, SD_EVENT_OFF);
}

static int on_owner(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name, *before, *after;

        if (sd_bus_message_read(m, "sss", &name, &before, &after) < 0)
                return 0;
        int r = *after ? came(userdata) : left(userdata);
        if (r < 0)
                (void) log_full_errno(LOG_WARNING, r, "Calls to cubed may fail while it is restarted: %m");
        return 0;
}

int cubed_new(sd_bus *bus, Cubed **ret) {
        _cleanup_(cubed_freep) Cubed *c = new0(Cubed, 1);
        if (!c)
                return -ENOMEM;

        c->bus = sd_bus_ref(bus);
        int r = sd_bus_add_match(bus, &c->match, CUBED_OWNER_MATCH, on_owner, c);
        if (r >= 0)
                r = sd_event_add_time_relative(sd_bus_get_event(bus), &c->away_timer, CLOCK_MONOTONIC, AWAY_USEC, 0, on_away_timer, c);
        if (r >= 0)
                r = sd_event_source_set_enabled(c->away_timer, SD_EVENT_OFF);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(c);
        return 0;
}

Cubed *cubed_free(Cubed *c) {
        if (!c)
                return NULL;

        /* The requests are gone before us, and their calls with them. */
        assert(!c->first && !c->held && c->n_outstanding == 0);
        sd_event_source_disable_unref(c->away_timer);
        sd_bus_slot_unref(c->match);
        sd_bus_unref(c->bus);
        free(c);
        return NULL;
}

static bool call_queued(Request *r, sd_bus_message *m, int k, CubedDone done, bool asks) {
        Cubed *c = r->gateway->cubed;
        CubedCall *call = k < 0 ? NULL : new0(CubedCall, 1);

        assert(r->share && !r->call);
        if (!call) {
                reply_errno(r, k < 0 ? k : -ENOMEM);
                return false;
        }
        *call = (CubedCall) { .cubed = c, .request = r, .message = sd_bus_message_ref(m), .done = done, .asks = asks };
        r->call = call;
        add_last(&c->first, call);
        send_next(c);
        return true;
}

void cubed_call(Request *r, sd_bus_message *m, int k, CubedDone done) {
        (void) call_queued(r, m, k, done, false);
}

bool cubed_call_asking(Request *r, sd_bus_message *m, int k, CubedDone done) {
        return call_queued(r, m, k, done, true);
}

void cubed_unbind(Request *r, const char *const *ids, size_t n, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "UnbindSandboxes", &m);
        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "s");
        for (size_t i = 0; k >= 0 && i < n; i++)
                k = sd_bus_message_append_basic(m, 's', ids[i]);
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        cubed_call(r, m, k, done);
}

void cubed_drop(Request *r) {
        if (r->call)
                call_free(r->call);
        r->call = NULL;
}

/* Errors. */

void reply_no_sandbox(Request *r) {
        request_reply_error(r, MHD_HTTP_NOT_FOUND, "Sandbox \"%s\" doesn't exist or you don't have access to it",
                            r->sandbox_id);
}

void reply_errno(Request *r, int error) {
        (void) log_full_errno(LOG_WARNING, error, "%s %s could not be done: %m", r->method, r->target);
        if (error == -ENOMEM)
                request_may_come_again(r);
        request_reply_error(r, error == -ENOMEM ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_INTERNAL_SERVER_ERROR,
                            "The gateway could not carry out this request");
}

bool cubed_is_away(const sd_bus_error *error) {
        return sd_bus_error_has_names(error, SD_BUS_ERROR_SERVICE_UNKNOWN, SD_BUS_ERROR_NAME_HAS_NO_OWNER, SD_BUS_ERROR_NO_REPLY,
                                      "org.freedesktop.systemd1.NoSuchUnit");
}

static const struct {
        const char *name;
        unsigned status;
} statuses[] = {
        { BUS_ERROR_NO_SUCH_SNAPSHOT, MHD_HTTP_NOT_FOUND },
        { BUS_ERROR_NO_SUCH_TEMPLATE, MHD_HTTP_NOT_FOUND },
        { BUS_ERROR_INVALID_ARGUMENT, MHD_HTTP_BAD_REQUEST },
        { BUS_ERROR_ACCESS_DENIED, MHD_HTTP_FORBIDDEN },
        { BUS_ERROR_NOT_RUNNING, MHD_HTTP_CONFLICT },
        { BUS_ERROR_BUSY, MHD_HTTP_CONFLICT },
        { BUS_ERROR_TEMPLATE_IN_USE, MHD_HTTP_BAD_REQUEST },
        { BUS_ERROR_SNAPSHOT_IN_USE, MHD_HTTP_BAD_REQUEST },
        { BUS_ERROR_QUOTA_EXCEEDED, MHD_HTTP_TOO_MANY_REQUESTS },
        { BUS_ERROR_NO_RESOURCES, MHD_HTTP_SERVICE_UNAVAILABLE },
        { BUS_ERROR_GUEST_TIMEOUT, MHD_HTTP_GATEWAY_TIMEOUT },
};

void reply_cubed_error(Request *r, const sd_bus_error *error) {
        if (sd_bus_error_has_name(error, BUS_ERROR_NO_SUCH_SANDBOX) ||
            sd_bus_error_has_name(error, SD_BUS_ERROR_UNKNOWN_OBJECT)) {
                reply_no_sandbox(r);
                return;
        }
        if (cubed_is_away(error)) {
                request_may_come_again(r);
                request_reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", client_error_text(error, 0));
                return;
        }
        if (sd_bus_error_has_names(error, BUS_ERROR_QUOTA_EXCEEDED, BUS_ERROR_GUEST_TIMEOUT))
                request_may_not_come_again(r);
        for (size_t i = 0; i < ELEMENTSOF(statuses); i++)
                if (sd_bus_error_has_name(error, statuses[i].name)) {
                        request_reply_error(r, statuses[i].status, "%s", client_error_text(error, 0));
                        return;
                }
        (void) log_full_errno(LOG_WARNING, 0, "%s %s: cubed said %s: %s", r->method, r->target, error->name,
                              strempty(error->message));
        request_reply_error(r, MHD_HTTP_INTERNAL_SERVER_ERROR, "cubed could not carry out this request");
}

/* The sandbox of a request. */

bool sandbox_is_theirs(const Request *r, json_object *properties) {
        return info_get(properties, "Owner") && info_u64(properties, "Owner") == r->gateway->uid &&
               streq(info_string(properties, "Tenant"), r->tenant);
}

static void on_properties(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        json_object *o = NULL;

        if (error) {
                reply_cubed_error(r, error);
                return;
        }
        int k = bus_to_json(reply, &o);
        if (k < 0) {
                reply_errno(r, k);
                return;
        }
        json_object_put(r->sandbox);
        r->sandbox = o;
        /* One that ends is as gone: it answers nothing any more. */
        if (!sandbox_is_theirs(r, o) || streq(info_string(o, "State"), "stopping") || streq(info_string(o, "State"), "creating"))
                reply_no_sandbox(r);
        else
                r->then(r);
}

void cubed_get_sandbox(Request *r, void (*then)(Request *r)) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char path[CUBE_BUS_PATH_MAX];

        r->then = then;
        int k = cubed_message(r, client_path(path, CUBE_BUS_PATH_SANDBOX, r->sandbox_id), "org.freedesktop.DBus.Properties",
                              "GetAll", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "s", CUBE_BUS_SANDBOX);
        cubed_call(r, m, k, on_properties);
}
