/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/list-query.h"
#include "gateway/op-common.h"

/* Those of the tenant that are there. */
static json_object *select_theirs(const Request *r, json_object *all) {
        json_object *theirs = json_object_new_array();

        for (size_t i = 0; theirs && i < json_object_array_length(all); i++) {
                json_object *p = json_object_array_get_idx(all, i);
                const char *state = info_string(p, "State");
                if (!sandbox_is_theirs(r, p) || streq(state, "creating") || streq(state, "stopping"))
                        continue;
                if (json_object_array_add(theirs, json_object_get(p)) < 0) {
                        json_object_put(theirs);
                        return NULL;
                }
        }
        return theirs;
}

static json_object *make_page(const Request *r, const ListQuery *q, json_object *all, char token[static LIST_TOKEN_MAX]) {
        json_object *theirs = select_theirs(r, all), *page = theirs ? list_page(theirs, q, token) : NULL;

        json_object_put(theirs);
        return page;
}

static void on_objects(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        json_object *all = json_object_new_array();
        char token[LIST_TOKEN_MAX] = "";
        ErrorText text = {};
        ListQuery q = {};

        int k = all ? 0 : -ENOMEM;
        if (k >= 0 && !error)
                k = bus_objects_to_json(reply, CUBE_BUS_SANDBOX, all);
        if (k >= 0 && !error)
                k = list_query_parse(&r->url, request_is_v2(r), &q, &text);
        if (error)
                reply_cubed_error(r, error);
        else if (k < 0)
                reply_bad(r, k, &text);
        else {
                json_object *page = make_page(r, &q, all, token);
                if (*token)
                        request_add_header(r, "X-Next-Token", token);
                request_reply_json(r, MHD_HTTP_OK, page);
        }
        list_query_done(&q);
        json_object_put(all);
}

void op_list(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        ErrorText error = {};
        ListQuery q;

        int k = list_query_parse(&r->url, request_is_v2(r), &q, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        list_query_done(&q);
        k = cubed_message(r, CUBE_BUS_PATH, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", &m);
        cubed_call(r, m, k, on_objects);
}
