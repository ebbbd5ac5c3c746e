/* SPDX-License-Identifier: Apache-2.0 */

/* Forks of a sandbox. Each is a sandbox of its own, whose guest still serves the clients of the source until it is told of
 * its own id and token; so it is answered after that. */

#include <stdio.h>

#include "gateway/endings.h"
#include "gateway/labels.h"
#include "gateway/op-common.h"
#include "gateway/serve.h"

#define FORKS_MAX 100

static int append_fork_labels(sd_bus_message *m, json_object *labels) {
        int k = labels_begin(m);

        if (k >= 0) {
                json_object_object_foreach(labels, key, value) {
                        if (k >= 0)
                                k = sd_bus_message_append(m, "{ss}", key, json_object_get_string(value));
                }
        }
        return k < 0 ? k : labels_end(m);
}

/* One of them, which has the source's properties but for its id. */
static json_object *forked_to_json(const Request *r, const char *id) {
        json_object *o = json_object_new_object(), *properties = NULL, *sandbox = NULL;

        if (o && json_object_deep_copy(r->sandbox, &properties, NULL) == 0 &&
            json_object_object_add(properties, "Id", json_object_new_string(id)) == 0)
                sandbox = sandbox_to_json(properties, &r->gateway->host_key, config_domain(&r->gateway->config));
        json_object_put(properties);
        if (sandbox && json_object_object_add(o, "sandbox", sandbox) == 0)
                return o;
        json_object_put(sandbox);
        json_object_put(o);
        return NULL;
}

static int fork_status(const char *error_name) {
        return streq(error_name, BUS_ERROR_QUOTA_EXCEEDED) ? MHD_HTTP_TOO_MANY_REQUESTS
             : streq(error_name, BUS_ERROR_NO_RESOURCES)   ? MHD_HTTP_SERVICE_UNAVAILABLE
                                                           : MHD_HTTP_INTERNAL_SERVER_ERROR;
}

static json_object *not_forked_to_json(int code, const char *message) {
        json_object *o = json_object_new_object(), *e = json_object_new_object();

        if (o && e && json_object_object_add(e, "code", json_object_new_int(code)) == 0 &&
            json_object_object_add(e, "message", json_object_new_string(message)) == 0 &&
            json_object_object_add(o, "error", e) == 0)
                return o;
        json_object_put(e);
        json_object_put(o);
        return NULL;
}

static void serve_next(Request *r);

/* In the place of the one that it is the turn of. */
static int put_failure(Request *r, const char *id, const sd_bus_error *error) {
        _cleanup_free_ char *message = NULL;

        if (asprintf(&message, NOT_SERVED, id, client_error_text(error, 0)) < 0) {
                message = NULL;
                return -ENOMEM;
        }
        json_object *o = not_forked_to_json((int) serve_status(error), message);
        if (!o || json_object_array_put_idx(r->forked, r->n_served, o) < 0) {
                json_object_put(o);
                return -ENOMEM;
        }
        return 0;
}

/* "": it came to nothing. */
static const char *forked_id(const Request *r, size_t i) {
        return info_string(info_get(json_object_array_get_idx(r->forked, i), "sandbox"), "sandboxID");
}

static void on_served(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        char id[SANDBOX_ID_MAX];
        int k = 0;

        if (error) {
                (void) snprintf(id, sizeof(id), "%s", forked_id(r, r->n_served));
                endings_add(r->gateway->endings, id);
                k = put_failure(r, id, error);
        }
        r->n_served++;
        if (k < 0)
                reply_errno(r, k);
        else
                serve_next(r);
}

static void on_unbound(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error)
                reply_cubed_error(r, error);
        else
                request_reply_json(r, MHD_HTTP_CREATED, TAKE_PTR(r->forked));
}

static void unbind(Request *r) {
        const char *ids[FORKS_MAX];
        size_t n = 0;

        for (size_t i = 0; i < MIN(json_object_array_length(r->forked), ELEMENTSOF(ids)); i++)
                if (*forked_id(r, i))
                        ids[n++] = forked_id(r, i);
        cubed_unbind(r, ids, n, on_unbound);
}

/* One after the other. */
static void serve_next(Request *r) {
        while (r->n_served < json_object_array_length(r->forked) && !*forked_id(r, r->n_served))
                r->n_served++;
        if (r->n_served == json_object_array_length(r->forked)) {
                unbind(r);
                return;
        }
        ServeSpec s = serve_spec(r, true, NULL);
        s.id = forked_id(r, r->n_served);
        serve_envd(r, &s, on_served);
}

static int read_forked(Request *r, sd_bus_message *reply) {
        const char *id, *name, *message;
        int done;

        r->forked = json_object_new_array();
        int k = r->forked ? sd_bus_message_enter_container(reply, 'a', "(" CUBE_BUS_FORKED ")") : -ENOMEM;
        while (k >= 0 && (k = sd_bus_message_read(reply, "(" CUBE_BUS_FORKED ")", &done, &id, NULL, &name, &message)) > 0) {
                json_object *o = done ? forked_to_json(r, id) : not_forked_to_json(fork_status(name), message);
                if (!o || json_object_array_add(r->forked, o) < 0) {
                        json_object_put(o);
                        k = -ENOMEM;
                }
        }
        return k;
}

static void on_forked(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error) {
                reply_cubed_error(r, error);
                return;
        }
        int k = read_forked(r, reply);
        if (k < 0)
                reply_errno(r, k);
        else
                serve_next(r);
}

void op_fork(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        ErrorText error = {};
        int64_t count = 1;
        uint64_t timeout;

        int k = field_int(r->json, "count", &count, &error);
        if (k >= 0 && count < 1)
                k = error_text(&error, "Count must be at least 1");
        if (k >= 0 && count > FORKS_MAX)
                k = error_text(&error, "Count must be at most %d", FORKS_MAX);
        if (k >= 0)
                k = timeout_parse(r->json, "timeout", &r->gateway->config, 1, request_is_v2(r) ? TIMEOUT_V2 : TIMEOUT_V1, false,
                                  &timeout, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        k = cubed_message_sandbox(r, "Fork", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "u", (uint32_t) count);
        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "{sv}");
        if (k >= 0)
                k = sd_bus_message_append(m, "{sv}", "tenant", "s", r->tenant);
        if (k >= 0)
                k = sd_bus_message_append(m, "{sv}", "timeout", "t", timeout);
        /* As in a create. */
        if (k >= 0)
                k = sd_bus_message_append(m, "{sv}", "bind-client", "b", 1);
        if (k >= 0)
                k = append_fork_labels(m, info_get(r->sandbox, "Labels"));
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        cubed_call_asking(r, m, k, on_forked);
}
