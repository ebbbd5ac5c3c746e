/* SPDX-License-Identifier: Apache-2.0 */

/* Snapshots. To clients one is ID:default, and one with a name TENANT/NAME as well. */

#include <stdio.h>

#include "base/parse.h"
#include "gateway/list-query.h"
#include "gateway/op-common.h"

typedef struct Item {
        const char *id, *name;    /* name "": none */
        uint64_t created;
} Item;

/* 1 and *ret, 0 at the end. */
static int read_item(sd_bus_message *m, Item *ret) {
        return sd_bus_message_read(m, "(" CUBE_BUS_SNAPSHOT_ITEM ")", &ret->id, &ret->name, NULL, NULL, NULL, NULL, &ret->created, NULL,
                                   NULL);
}

/* Of those that clients have taken. NULL and 0: any. */
typedef struct Filter {
        const char *sandbox, *id, *name, *after;
        uint32_t limit;
} Filter;

static int append_filter(sd_bus_message *m, const Request *r, const Filter *f) {
        const char *const texts[][2] = { { "sandbox", f->sandbox }, { "id", f->id }, { "name", f->name }, { "after", f->after } };

        int k = sd_bus_message_open_container(m, 'a', "{sv}");
        /* Another user may have a tenant of the same name. */
        if (k >= 0)
                k = sd_bus_message_append(m, "{sv}{sv}{sv}{sv}{sv}", "owner", "u", (uint32_t) r->gateway->uid, "tenant", "s", r->tenant,
                                          "kind", "s", "snapshot", "newest-first", "b", 1, "limit", "u", f->limit);
        for (size_t i = 0; k >= 0 && i < ELEMENTSOF(texts); i++)
                if (texts[i][1])
                        k = sd_bus_message_append(m, "{sv}", texts[i][0], "s", texts[i][1]);
        return k < 0 ? k : sd_bus_message_close_container(m);
}

static void list_snapshots(Request *r, const Filter *f, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "ListSnapshots", &m);
        if (k >= 0)
                k = append_filter(m, r, f);
        cubed_call(r, m, k, done);
}

/* 1: one was found, and it goes on with that; 0: none; negative: the request is answered. */
static int take_found(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        Item i;

        if (error) {
                reply_cubed_error(r, error);
                return -EIO;
        }
        int k = sd_bus_message_enter_container(reply, 'a', "(" CUBE_BUS_SNAPSHOT_ITEM ")");
        if (k >= 0)
                k = read_item(reply, &i);
        if (k < 0)
                reply_errno(r, k);
        else if (k > 0)
                r->found(r, i.id);
        return k;
}

static void on_named(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (take_found(r, reply, error) == 0)
                r->found(r, NULL);
}

/* A name moves on to the newest that was given it. */
static void on_id(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        const Filter by_name = { .name = r->ref.name, .limit = 1 };

        if (take_found(r, reply, error) == 0)
                list_snapshots(r, &by_name, on_named);
}

void snapshot_find(Request *r, void (*found)(Request *r, const char *snapshot)) {
        const Filter by_id = { .id = r->ref.name, .limit = 1 };

        r->found = found;
        /* None has a tag. */
        if (r->ref.tag[0])
                found(r, NULL);
        else
                list_snapshots(r, &by_id, on_id);
}

/* As clients see one; name may be "". */
static json_object *snapshot_to_json(const Request *r, const char *id, const char *name) {
        json_object *o = json_object_new_object(), *names = json_object_new_array();
        char text[160];

        /* No namespace before it: E2B's SDK for Python put it into a path as it was, up to 2.37. */
        (void) snprintf(text, sizeof(text), "%s:default", id);
        int k = o && names ? json_object_object_add(o, "snapshotID", json_object_new_string(text)) : -1;
        if (k == 0 && *name) {
                (void) snprintf(text, sizeof(text), "%s/%s", r->tenant, name);
                k = json_object_array_add(names, json_object_new_string(text));
        }
        if (k == 0 && json_object_object_add(o, "names", names) == 0)
                return o;
        json_object_put(names);
        json_object_put(o);
        return NULL;
}

/* Taking one. */

/* ref->name is "" where there is none. 0, or the request is answered. */
static int read_name(Request *r, TemplateRef *ref) {
        const char *given = NULL;
        ErrorText error = {};

        *ref = (TemplateRef) {};
        int k = field_string(r->json, "name", &given, &error);
        if (k > 0) {
                k = template_ref_parse(given, r->tenant, ref);
                if (k < 0 || ref->tag[0])
                        k = error_text(&error, "Invalid snapshot name: %.100s", given);
        }
        if (k < 0)
                reply_bad(r, k, &error);
        return k < 0 ? k : 0;
}

static void on_taken(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        TemplateRef ref;
        const char *id;

        if (error) {
                reply_cubed_error(r, error);
                return;
        }
        int k = sd_bus_message_read(reply, "so", &id, NULL);
        if (k < 0)
                reply_errno(r, k);
        else if (read_name(r, &ref) >= 0)
                request_reply_json(r, MHD_HTTP_CREATED, snapshot_to_json(r, id, ref.name));
}

void op_snapshot(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        TemplateRef ref;

        if (read_name(r, &ref) < 0)
                return;
        if (!streq(info_string(r->sandbox, "State"), "running")) {
                request_reply_error(r, MHD_HTTP_CONFLICT, "Sandbox '%s' cannot be snapshotted while in '%s' state", r->sandbox_id,
                                    info_string(r->sandbox, "State"));
                return;
        }
        int k = cubed_message_sandbox(r, "Snapshot", &m);
        if (k >= 0)
                k = *ref.name ? sd_bus_message_append(m, "a{sv}", 2, "tenant", "s", r->tenant, "name", "s", ref.name)
                              : sd_bus_message_append(m, "a{sv}", 1, "tenant", "s", r->tenant);
        cubed_call(r, m, k, on_taken);
}

/* Listing them: newest first. */

/* 0, or the request is answered. */
static int read_list_query(Request *r, ListQuery *ret) {
        ErrorText error = {};

        *ret = (ListQuery) {};
        int k = list_limit_parse(&r->url, &ret->limit, &error);
        if (k >= 0)
                k = list_token_parse(url_query(&r->url, "nextToken"), ret, &error);
        if (k < 0)
                reply_bad(r, k, &error);
        return k;
}

/* One more than the page has tells whether there is another one. */
static int make_page(Request *r, sd_bus_message *m, unsigned limit, json_object *page) {
        char token[LIST_TOKEN_MAX] = "";
        Item i;

        int k = sd_bus_message_enter_container(m, 'a', "(" CUBE_BUS_SNAPSHOT_ITEM ")");
        while (k >= 0 && (k = read_item(m, &i)) > 0) {
                if (json_object_array_length(page) == limit) {
                        request_add_header(r, "X-Next-Token", token);
                        return 0;
                }
                json_object *o = snapshot_to_json(r, i.id, i.name);
                if (!o || json_object_array_add(page, o) < 0) {
                        json_object_put(o);
                        return -ENOMEM;
                }
                (void) snprintf(token, sizeof(token), "%llu_%s", (unsigned long long) i.created, i.id);
        }
        return k;
}

static void on_listed(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        json_object *page;
        ListQuery q;

        if (error) {
                reply_cubed_error(r, error);
                return;
        }
        if (read_list_query(r, &q) < 0)
                return;
        page = json_object_new_array();
        int k = page ? make_page(r, reply, q.limit, page) : -ENOMEM;
        if (k >= 0) {
                request_reply_json(r, MHD_HTTP_OK, page);
                return;
        }
        json_object_put(page);
        reply_errno(r, k);
}

void op_snapshots(Request *r) {
        const char *sandbox = url_query(&r->url, "sandboxID"), *name = url_query(&r->url, "name");
        char id[SANDBOX_ID_MAX], after[LIST_TOKEN_MAX];
        TemplateRef ref = {};
        ListQuery q;

        if (read_list_query(r, &q) < 0)
                return;
        if (sandbox && route_sandbox_id(sandbox, id) < 0) {
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Invalid sandbox ID");
                return;
        }
        /* None is called like that. */
        if (name && template_ref_parse(name, r->tenant, &ref) < 0) {
                request_reply_json(r, MHD_HTTP_OK, json_object_new_array());
                return;
        }
        (void) snprintf(after, sizeof(after), "%llu_%s", (unsigned long long) q.last_started, q.last_id);
        const Filter f = {
                .sandbox = sandbox ? id : NULL, .name = name ? ref.name : NULL, .after = q.goes_on ? after : NULL, .limit = q.limit + 1,
        };
        list_snapshots(r, &f, on_listed);
}
