/* SPDX-License-Identifier: Apache-2.0 */

/* Snapshots. To clients one is TENANT/ID. */

#include <stdio.h>

#include "base/parse.h"
#include "gateway/list-query.h"
#include "gateway/op-common.h"

typedef struct Item {
        const char *id, *name;    /* name "": none */
        uint64_t created;
        uint32_t owner;
} Item;

/* Ours of those of a tenant, of whom another user may have one of the same name: 1 and *ret, 0 at the end. */
static int read_item(const Request *r, sd_bus_message *m, Item *ret) {
        int k;

        while ((k = sd_bus_message_read(m, "(" CUBE_BUS_SNAPSHOT_ITEM ")", &ret->id, &ret->name, NULL, NULL, NULL, &ret->owner,
                                        &ret->created, NULL, NULL)) > 0)
                if (ret->owner == r->gateway->uid)
                        return 1;
        return k;
}

static void list_snapshots(Request *r, const char *sandbox, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "ListSnapshots", &m);
        if (k >= 0)
                k = sandbox ? sd_bus_message_append(m, "a{sv}", 3, "kind", "s", "snapshot", "tenant", "s", r->tenant, "sandbox",
                                                    "s", sandbox)
                            : sd_bus_message_append(m, "a{sv}", 2, "kind", "s", "snapshot", "tenant", "s", r->tenant);
        cubed_call(r, m, k, done);
}

static void on_looked(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        char id[sizeof(r->ref.name)] = "";
        uint64_t newest = 0;
        Item i;

        if (error) {
                reply_cubed_error(r, error);
                return;
        }
        int k = sd_bus_message_enter_container(reply, 'a', "(" CUBE_BUS_SNAPSHOT_ITEM ")");
        while (k >= 0 && (k = read_item(r, reply, &i)) > 0) {
                /* A name moves on to the newest that was given it. */
                if (!streq(i.id, r->ref.name) && (!streq(i.name, r->ref.name) || i.created < newest))
                        continue;
                (void) snprintf(id, sizeof(id), "%s", i.id);
                if (streq(i.id, r->ref.name))
                        break;
                newest = i.created;
        }
        if (k < 0)
                reply_errno(r, k);
        else
                r->found(r, *id ? id : NULL);
}

void snapshot_find(Request *r, void (*found)(Request *r, const char *snapshot)) {
        r->found = found;
        /* None has a tag. */
        if (r->ref.tag[0])
                found(r, NULL);
        else
                list_snapshots(r, NULL, on_looked);
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

typedef struct Row {
        char *id, *name;
        uint64_t created;
} Row;

static int compare_rows(const void *a, const void *b) {
        const Row *x = a, *y = b;

        if (x->created != y->created)
                return x->created > y->created ? -1 : 1;
        return strcmp(y->id, x->id);
}

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

static bool row_wanted(const Request *r, const Item *i, const ListQuery *q) {
        const char *name = url_query(&r->url, "name");
        TemplateRef ref = {};

        if (name && (template_ref_parse(name, r->tenant, &ref) < 0 || !streq(ref.name, i->name)))
                return false;
        if (!q->goes_on)
                return true;
        return i->created < q->last_started || (i->created == q->last_started && strcmp(i->id, q->last_id) < 0);
}

static int read_rows(Request *r, sd_bus_message *m, const ListQuery *q, Row **rows, size_t *n) {
        Item i;

        int k = sd_bus_message_enter_container(m, 'a', "(" CUBE_BUS_SNAPSHOT_ITEM ")");
        while (k >= 0 && (k = read_item(r, m, &i)) > 0) {
                if (!row_wanted(r, &i, q))
                        continue;
                Row *grown = realloc(*rows, (*n + 1) * sizeof(Row));
                if (!grown)
                        return -ENOMEM;
                *rows = grown;
                grown[(*n)++] = (Row) { strdup(i.id), strdup(i.name), i.created };
                if (!grown[*n - 1].id || !grown[*n - 1].name)
                        return -ENOMEM;
        }
        return k;
}

static void reply_rows(Request *r, const ListQuery *q, const Row *rows, size_t n) {
        json_object *page = json_object_new_array();
        char token[LIST_TOKEN_MAX];

        for (size_t i = 0; page && i < MIN(n, (size_t) q->limit); i++) {
                json_object *o = snapshot_to_json(r, rows[i].id, rows[i].name);
                if (o && json_object_array_add(page, o) == 0)
                        continue;
                json_object_put(o);
                json_object_put(page);
                page = NULL;
        }
        if (n > q->limit) {
                (void) snprintf(token, sizeof(token), "%llu_%s", (unsigned long long) rows[q->limit - 1].created,
                                rows[q->limit - 1].id);
                request_add_header(r, "X-Next-Token", token);
        }
        request_reply_json(r, MHD_HTTP_OK, page);
}

static void on_listed(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        Row *rows = NULL;
        size_t n = 0;
        ListQuery q;

        if (error) {
                reply_cubed_error(r, error);
                return;
        }
        if (read_list_query(r, &q) < 0)
                return;
        int k = read_rows(r, reply, &q, &rows, &n);
        if (k < 0)
                reply_errno(r, k);
        else {
                if (n > 0)
                        qsort(rows, n, sizeof(Row), compare_rows);
                reply_rows(r, &q, rows, n);
        }
        for (size_t i = 0; i < n; i++) {
                free(rows[i].id);
                free(rows[i].name);
        }
        free(rows);
}

void op_snapshots(Request *r) {
        const char *sandbox = url_query(&r->url, "sandboxID");
        char id[SANDBOX_ID_MAX];
        ListQuery q;

        if (read_list_query(r, &q) < 0)
                return;
        if (sandbox && route_sandbox_id(sandbox, id) < 0)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Invalid sandbox ID");
        else
                list_snapshots(r, sandbox ? id : NULL, on_listed);
}
