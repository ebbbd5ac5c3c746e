/* SPDX-License-Identifier: Apache-2.0 */

/* What sandboxes use: of one as a series, of several the last figures. */

#include <stdio.h>

#include "base/clock.h"
#include "base/parse.h"
#include "dbus/client-json.h"
#include "gateway/op-common.h"

#define IDS_MAX 100U
/* Guests that do not answer hold up a question for several no longer than this. */
#define ALL_USEC (10 * USEC_PER_SEC)

static void ask_usage(Request *r, const char *id, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char path[CUBE_BUS_PATH_MAX];

        int k = cubed_message(r, client_path(path, CUBE_BUS_PATH_SANDBOX, id), CUBE_BUS_SANDBOX, "GetGuestUsage", &m);
        cubed_call(r, m, k, done);
}

/* A guest that told nothing adds nothing. */
static int take_usage(Request *r, const char *id, sd_bus_message *reply) {
        json_object *usage = NULL;

        int k = reply ? bus_to_json(reply, &usage) : 0;
        if (k >= 0 && usage)
                k = metrics_add(r->gateway->metrics, id, wall_usec(), usage);
        json_object_put(usage);
        return k;
}

/* Of one. */

static int read_seconds(const Request *r, const char *name, uint64_t otherwise, uint64_t *ret, ErrorText *error) {
        const char *text = url_query(&r->url, name);

        *ret = otherwise;
        if (!text || !*text || parse_u64(text, ret) >= 0)
                return 0;
        return error_text(error, "Invalid %s: it is in seconds since 1970", name);
}

/* 0, or the request is answered. */
static int read_range(Request *r, uint64_t *ret_start, uint64_t *ret_end) {
        ErrorText error = {};

        int k = read_seconds(r, "start", 0, ret_start, &error);
        if (k >= 0)
                k = read_seconds(r, "end", UINT64_MAX, ret_end, &error);
        if (k >= 0 && *ret_end < *ret_start)
                k = error_text(&error, "The end is before the start");
        if (k < 0)
                reply_bad(r, k, &error);
        return k;
}

static void reply_series(Request *r) {
        uint64_t start, end;

        if (read_range(r, &start, &end) >= 0)
                request_reply_json(r, MHD_HTTP_OK, metrics_to_json(r->gateway->metrics, r->sandbox_id, start, end));
}

static void on_usage(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error && sd_bus_error_has_name(error, SD_BUS_ERROR_UNKNOWN_OBJECT)) {
                reply_no_sandbox(r);
                return;
        }
        int k = take_usage(r, r->sandbox_id, reply);
        if (k < 0)
                reply_errno(r, k);
        else
                reply_series(r);
}

void op_metrics(Request *r) {
        uint64_t start, end, now = wall_usec();

        if (read_range(r, &start, &end) < 0)
                return;
        if (!streq(info_string(r->sandbox, "State"), "running") || end < now / USEC_PER_SEC ||
            metrics_recent(r->gateway->metrics, r->sandbox_id, now))
                reply_series(r);
        else
                ask_usage(r, r->sandbox_id, on_usage);
}

/* Of several, one after the other. */

static void ask_next(Request *r);

static const char *id_of(json_object *array, size_t i) {
        return json_object_get_string(json_object_array_get_idx(array, i));
}

static const char *asked_id(const Request *r) {
        return id_of(r->wanted, r->n_asked);
}

static int add_id(json_object *array, const char *text, size_t n) {
        json_object *id = json_object_new_string_len(text, (int) n);

        if (id && json_object_array_add(array, id) == 0)
                return 0;
        json_object_put(id);
        return -ENOMEM;
}

static int fill_last(const Request *r, json_object *ret) {
        for (size_t i = 0; i < json_object_array_length(r->listed); i++) {
                const char *id = id_of(r->listed, i);
                json_object *sample;

                int k = metrics_last_to_json(r->gateway->metrics, id, &sample);
                if (k > 0 && json_object_object_add(ret, id, sample) < 0) {
                        json_object_put(sample);
                        k = -ENOMEM;
                }
                if (k < 0)
                        return k;
        }
        return 0;
}

static void reply_last(Request *r) {
        json_object *o = json_object_new_object(), *sandboxes = json_object_new_object();

        int k = o && sandboxes ? fill_last(r, sandboxes) : -ENOMEM;
        if (k >= 0 && json_object_object_add(o, "sandboxes", sandboxes) < 0)
                k = -ENOMEM;
        if (k >= 0) {
                request_reply_json(r, MHD_HTTP_OK, o);
                return;
        }
        json_object_put(sandboxes);
        json_object_put(o);
        reply_errno(r, k);
}

static void on_usage_of_one(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        int k = take_usage(r, asked_id(r), reply);

        if (k < 0) {
                reply_errno(r, k);
                return;
        }
        r->n_asked++;
        ask_next(r);
}

/* One that is not there, or another tenant's, or does not run, is passed over. */
static void on_properties(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        json_object *o = NULL;

        int k = reply ? bus_to_json(reply, &o) : 0;
        bool counts = o && sandbox_is_theirs(r, o) && streq(info_string(o, "State"), "running");
        json_object_put(o);
        if (k >= 0 && counts)
                k = add_id(r->listed, asked_id(r), strlen(asked_id(r)));
        if (k < 0)
                reply_errno(r, k);
        else if (counts && !metrics_recent(r->gateway->metrics, asked_id(r), wall_usec()) &&
                 now_usec() < r->give_up_usec)
                ask_usage(r, asked_id(r), on_usage_of_one);
        else {
                r->n_asked++;
                ask_next(r);
        }
}

static void ask_next(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char path[CUBE_BUS_PATH_MAX];

        if (r->n_asked == json_object_array_length(r->wanted)) {
                reply_last(r);
                return;
        }
        int k = cubed_message(r, client_path(path, CUBE_BUS_PATH_SANDBOX, asked_id(r)), "org.freedesktop.DBus.Properties",
                              "GetAll", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "s", CUBE_BUS_SANDBOX);
        cubed_call(r, m, k, on_properties);
}

/* What can be an id, into r->wanted. -E2BIG. */
static int read_ids(Request *r, const char *list) {
        char id[SANDBOX_ID_MAX];
        int k = 0;

        for (size_t n; k >= 0 && *list; list += n + (list[n] == ',')) {
                n = strcspn(list, ",");
                if (n == 0 || n >= sizeof(id))
                        continue;
                memcpy(id, list, n);
                id[n] = 0;
                if (!sandbox_id_valid(id))
                        continue;
                k = json_object_array_length(r->wanted) < IDS_MAX ? add_id(r->wanted, id, n) : -E2BIG;
        }
        return k;
}

void op_metrics_of_all(Request *r) {
        const char *list = url_query(&r->url, "sandbox_ids");
        ErrorText error = {};

        r->wanted = json_object_new_array();
        r->listed = json_object_new_array();
        int k = !r->wanted || !r->listed ? -ENOMEM : !list ? -EINVAL : read_ids(r, list);
        if (k == -EINVAL || k == -E2BIG)
                k = error_text(&error, k == -EINVAL ? "sandbox_ids is missing: up to %u ids with commas" : "sandbox_ids has more than %u ids",
                               IDS_MAX);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        r->give_up_usec = now_usec() + ALL_USEC;
        ask_next(r);
}
