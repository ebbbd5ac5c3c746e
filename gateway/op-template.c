/* SPDX-License-Identifier: Apache-2.0 */

/* Templates: those of root, which all tenants may use, and those that a tenant has built. */

#include <stdio.h>

#include "gateway/builds.h"
#include "gateway/json-maker.h"
#include "gateway/list-query.h"
#include "gateway/op-common.h"
#include "gateway/template-json.h"

/* Listing. */

/* One of a tenant's is in the list once: as what its name without a tag stands for, or as the last that was built. */
static bool put_in_place(json_object *list, json_object *o, bool is_default) {
        const char *id = info_string(o, "templateID");

        for (size_t i = 0; i < json_object_array_length(list); i++) {
                json_object *there = json_object_array_get_idx(list, i);
                if (!streq(info_string(there, "templateID"), id))
                        continue;
                if (is_default || strcmp(info_string(there, "createdAt"), info_string(o, "createdAt")) < 0)
                        return json_object_array_put_idx(list, i, o) == 0;
                json_object_put(o);
                return true;
        }
        return json_append(list, o);
}

static bool add_template(Request *r, json_object *p) {
        bool failed = false, ok = true;
        Called c;

        if (template_called(p, r->tenant, r->gateway->uid, &c, &failed)) {
                json_object *o = template_to_json(r->tenant, p, &c);
                ok = o && put_in_place(r->listed, o, c.is_default);
        }
        called_done(&c);
        return ok && !failed;
}

static void on_page(Request *r, sd_bus_message *reply, const sd_bus_error *error);

/* after: where the one before ended, "": there is none. */
static void ask_page(Request *r, const char *after) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "FindTemplates", &m);
        if (k >= 0)
                k = sd_bus_message_open_container(m, 'a', "{sv}");
        if (k >= 0)
                k = sd_bus_message_append(m, "{sv}{sv}", "tenant", "s", r->tenant, "names-only", "b", (int) r->names_only);
        if (k >= 0 && *after)
                k = sd_bus_message_append(m, "{sv}", "after", "s", after);
        if (k >= 0)
                k = sd_bus_message_close_container(m);
        cubed_call(r, m, k, on_page);
}

static void on_page(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        json_object *found = NULL;
        const char *next;

        if (error) {
                reply_cubed_error(r, error);
                return;
        }
        int k = bus_to_json(reply, &found);
        if (k >= 0)
                k = sd_bus_message_read(reply, "s", &next);
        for (size_t i = 0; k >= 0 && i < json_object_array_length(found); i++)
                if (!r->each(r, json_object_array_get_idx(json_object_array_get_idx(found, i), 1)))
                        k = -ENOMEM;
        json_object_put(found);
        if (k < 0)
                reply_errno(r, k);
        else if (*next)
                ask_page(r, next);
        else
                r->then(r);
}

void template_each(Request *r, bool names_only, bool (*each)(Request *r, json_object *properties), void (*then)(Request *r)) {
        r->names_only = names_only;
        r->each = each;
        r->then = then;
        ask_page(r, "");
}

/* All that the tenant may see into r->listed, as cubed has them. */
static void list_templates(Request *r, void (*then)(Request *r)) {
        r->listed = json_object_new_array();
        if (r->listed)
                template_each(r, false, add_template, then);
        else
                reply_errno(r, -ENOMEM);
}

static int by_id(const void *a, const void *b) {
        return strcmp(info_string(*(json_object *const *) a, "templateID"), info_string(*(json_object *const *) b, "templateID"));
}

/* A page goes on behind the id with which the one before ended, be that one there still or not. */
static void reply_list(Request *r) {
        const char *after = strempty(url_query(&r->url, "nextToken"));
        unsigned limit = LIST_WHOLE, n = 0;
        ErrorText error = {};

        int k = request_is_v2(r) ? list_limit_parse(&r->url, &limit, &error) : 0;
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        json_object *page = json_object_new_array();
        const char *last = NULL;
        bool ok = page;
        if (request_is_v2(r))
                json_object_array_sort(r->listed, by_id);
        for (size_t i = 0; ok && i < json_object_array_length(r->listed); i++) {
                json_object *o = json_object_array_get_idx(r->listed, i);
                if (request_is_v2(r) && strcmp(info_string(o, "templateID"), after) <= 0)
                        continue;
                if (request_is_v2(r) && n++ == limit) {
                        request_add_header(r, "X-Next-Token", last);
                        break;
                }
                last = info_string(o, "templateID");
                ok = json_append(page, json_object_get(o));
        }
        if (ok) {
                request_reply_json(r, MHD_HTTP_OK, page);
                return;
        }
        json_object_put(page);
        reply_errno(r, -ENOMEM);
}

void op_templates(Request *r) {
        list_templates(r, reply_list);
}

/* Which one is meant. */

static bool add_names(Request *r, json_object *p) {
        return template_add_names(p, r->names);
}

void template_names(Request *r, void (*then)(Request *r)) {
        json_object_put(r->names);
        r->names = json_object_new_array();
        if (r->names)
                template_each(r, true, add_names, then);
        else
                reply_errno(r, -ENOMEM);
}

static void on_names_to_find(Request *r) {
        (void) template_names_find(r->names, r->tenant, r->gateway->uid, &r->ref, &r->template);
        r->then_found(r);
}

void template_find(Request *r, void (*then)(Request *r)) {
        r->then_found = then;
        template_names(r, on_names_to_find);
}

void reply_no_template(Request *r) {
        if (r->template.name_is_known)
                request_reply_error(r, MHD_HTTP_NOT_FOUND, "tag '%s' does not exist for template '%s'",
                                    r->ref.tag[0] ? r->ref.tag : DEFAULT_TAG, r->ref.name);
        else
                request_reply_error(r, MHD_HTTP_NOT_FOUND, "template '%s' not found", r->ref.name);
}

int template_read_ref(Request *r) {
        int k = template_ref_parse(r->template_ref, r->tenant, &r->ref);

        if (k == -EINVAL)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Invalid template reference: %.100s", r->template_ref);
        else if (k < 0)
                request_reply_error(r, MHD_HTTP_NOT_FOUND, "template '%.100s' not found", r->template_ref);
        return k;
}

static void reply_alias(Request *r) {
        char id[TEMPLATE_ID_SIZE];

        /* Without a tag it is asked for the name alone. */
        if (!r->template.cubed_id[0] && (!r->template.own || strchr(r->template_ref, ':'))) {
                reply_no_template(r);
                return;
        }
        template_public_id(r->tenant, r->template.name, id);
        JsonMaker m = json_maker_new();
        json_put_string(&m, "templateID", r->template.own ? id : r->template.cubed_id);
        json_put(&m, "public", json_object_new_boolean(!r->template.own));
        request_reply_json(r, MHD_HTTP_OK, json_maker_done(&m));
}

void op_alias(Request *r) {
        if (template_read_ref(r) >= 0)
                template_find(r, reply_alias);
}

/* Removing: all that was built under a name, or a snapshot. */

static void on_snapshot(Request *r, const char *snapshot) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        if (!snapshot) {
                reply_no_template(r);
                return;
        }
        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "RemoveSnapshot", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "s", snapshot);
        cubed_call(r, m, k, on_done_no_content);
}

static void remove_next(Request *r);

static void on_removed(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        /* By somebody else, or by its other name. */
        if (error && !sd_bus_error_has_name(error, BUS_ERROR_NO_SUCH_TEMPLATE))
                reply_cubed_error(r, error);
        else
                remove_next(r);
}

static void remove_next(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        TemplateName n;

        for (; r->n_done < json_object_array_length(r->names); r->n_done++)
                if (template_name_parse(json_object_array_get_idx(r->names, r->n_done), r->tenant, r->gateway->uid, &n) && n.own &&
                    streq(n.name, r->template.name))
                        break;
        if (r->n_done == json_object_array_length(r->names)) {
                builds_discard_nameless(r->gateway->builds, r->tenant, r->names);
                request_reply(r, MHD_HTTP_NO_CONTENT);
                return;
        }
        r->n_done++;
        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "RemoveTemplate", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "s", n.cubed_id);
        cubed_call_asking(r, m, k, on_removed);
}

static void remove_found(Request *r) {
        if (r->template.own)
                remove_next(r);
        else if (r->template.cubed_id[0])
                request_reply_error(r, MHD_HTTP_FORBIDDEN, "template '%.100s' belongs to the host", r->template_ref);
        else
                snapshot_find(r, on_snapshot);
}

void op_remove(Request *r) {
        if (template_read_ref(r) >= 0)
                template_find(r, remove_found);
}
