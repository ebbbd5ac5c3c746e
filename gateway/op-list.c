/* SPDX-License-Identifier: Apache-2.0 */

/* A list: cubed finds, a page of its own at a time, and what metadata selects is selected here, until the client's page is
 * full. */

#include "gateway/list-query.h"
#include "gateway/op-common.h"

static void ask(Request *r, const ListQuery *q, const char *after);

static void reply_page(Request *r, const ListQuery *q, bool more) {
        char token[LIST_TOKEN_MAX];

        if (more)
                request_add_header(r, "X-Next-Token", list_token(r->listed, token));
        request_reply_json(r, MHD_HTTP_OK, list_to_json(r->listed));
}

static void go_on(Request *r, sd_bus_message *reply, const ListQuery *q) {
        json_object *found = NULL;
        const char *next;

        int k = bus_to_json(reply, &found);
        if (k >= 0)
                k = sd_bus_message_read(reply, "s", &next);
        if (k >= 0)
                k = list_select(found, q, r->listed);
        json_object_put(found);
        if (k == -E2BIG)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "These are too many sandboxes for one answer; GET /v2/sandboxes has pages");
        else if (k < 0)
                reply_errno(r, k);
        else if (k == 0 && *next)
                ask(r, q, next);
        else
                reply_page(r, q, k > 0);
}

static void on_found(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        ErrorText text = {};
        ListQuery q;

        if (error) {
                reply_cubed_error(r, error);
                return;
        }
        int k = list_query_parse(&r->url, request_is_v2(r), &q, &text);
        if (k < 0) {
                reply_bad(r, k, &text);
                return;
        }
        go_on(r, reply, &q);
        list_query_done(&q);
}

static void ask(Request *r, const ListQuery *q, const char *after) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "FindSandboxes", &m);
        if (k >= 0)
                k = list_query_append(m, q, r->gateway->uid, r->tenant, after);
        cubed_call(r, m, k, on_found);
}

void op_list(Request *r) {
        ErrorText error = {};
        ListQuery q;

        int k = list_query_parse(&r->url, request_is_v2(r), &q, &error);
        if (k >= 0) {
                r->listed = json_object_new_array();
                k = r->listed ? 0 : -ENOMEM;
        }
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        if (q.nothing)
                reply_page(r, &q, false);
        else
                ask(r, &q, NULL);
        list_query_done(&q);
}
