/* SPDX-License-Identifier: Apache-2.0 */

/* One template with its builds, and who may use it. */

#include <stdio.h>

#include "gateway/builds.h"
#include "gateway/json-maker.h"
#include "gateway/list-query.h"
#include "gateway/op-common.h"
#include "gateway/template-json.h"

/* The tenant's of that name, or the one of the host's. */
static bool is_meant(const Request *r, json_object *p, const Called *c) {
        return r->template.own ? c->own && streq(c->name, r->template.name) : streq(info_string(p, "Id"), r->template.cubed_id);
}

static bool add_names(json_object *list, json_object *names) {
        bool ok = true;

        for (size_t i = 0; ok && i < json_object_array_length(names); i++)
                ok = json_append(list, json_object_get(json_object_array_get_idx(names, i)));
        return ok;
}

/* The builds of it onto r->listed, what they are called onto r->names. */
static bool add_build(Request *r, json_object *p) {
        bool failed = false, ok = true;
        Called c;

        if (template_called(p, r->tenant, r->gateway->uid, &c, &failed) && is_meant(r, p, &c))
                ok = json_append(r->listed, template_build_to_json(p, &c)) && add_names(r->names, c.names);
        called_done(&c);
        return ok && !failed;
}

/* The newest first. */
static int by_time(const void *a, const void *b) {
        return strcmp(info_string(*(json_object *const *) b, "createdAt"), info_string(*(json_object *const *) a, "createdAt"));
}

/* What of r->listed is on the page that the client asks for: behind the build with which the one before ended. -EINVAL with error. */
static int take_page(Request *r, json_object *page, ErrorText *error) {
        const char *after = url_query(&r->url, "nextToken");
        size_t i = 0, n = json_object_array_length(r->listed);
        unsigned limit;

        int k = list_limit_parse(&r->url, &limit, error);
        if (k < 0)
                return k;
        if (after) {
                while (i < n && !streq(info_string(json_object_array_get_idx(r->listed, i), "buildID"), after))
                        i++;
                if (i++ == n)
                        return error_text(error, "Invalid next token");
        }
        for (; i < n && json_object_array_length(page) < limit; i++)
                if (!json_append(page, json_object_get(json_object_array_get_idx(r->listed, i))))
                        return -ENOMEM;
        if (i < n && i > 0)
                request_add_header(r, "X-Next-Token", info_string(json_object_array_get_idx(r->listed, i - 1), "buildID"));
        return 0;
}

static json_object *info_to_json(Request *r, json_object *page) {
        size_t n = json_object_array_length(r->listed);
        json_object *aliases = json_object_new_array();
        char id[TEMPLATE_ID_SIZE];
        JsonMaker m = json_maker_new();

        template_public_id(r->tenant, r->template.name, id);
        if (!json_append(aliases, json_object_new_string(r->template.name))) {
                json_object_put(aliases);
                aliases = NULL;
        }
        json_put_string(&m, "templateID", r->template.own ? id : r->template.cubed_id);
        json_put(&m, "public", json_object_new_boolean(!r->template.own));
        json_put(&m, "aliases", aliases);
        json_put(&m, "names", json_object_get(r->names));
        json_put_string(&m, "createdAt", info_string(json_object_array_get_idx(r->listed, n - 1), "createdAt"));
        json_put_string(&m, "updatedAt", info_string(json_object_array_get_idx(r->listed, 0), "createdAt"));
        /* Nobody counts them. */
        json_put_null(&m, "lastSpawnedAt");
        json_put(&m, "spawnCount", json_object_new_int(0));
        json_put(&m, "builds", json_object_get(page));
        return json_maker_done(&m);
}

static void reply_info(Request *r) {
        ErrorText error = {};
        char id[TEMPLATE_ID_SIZE];

        template_public_id(r->tenant, r->template.name, id);
        if (r->template.own && !builds_append_open(r->gateway->builds, r->tenant, id, r->listed)) {
                reply_errno(r, -ENOMEM);
                return;
        }
        /* It went meanwhile. */
        if (json_object_array_length(r->listed) == 0) {
                reply_no_template(r);
                return;
        }
        json_object_array_sort(r->listed, by_time);
        json_object *page = json_object_new_array();
        int k = page ? take_page(r, page, &error) : -ENOMEM;
        if (k < 0)
                reply_bad(r, k, &error);
        else
                request_reply_json(r, MHD_HTTP_OK, info_to_json(r, page));
        json_object_put(page);
}

static void on_found(Request *r) {
        if (!r->template.name_is_known) {
                reply_no_template(r);
                return;
        }
        json_object_put(r->names);
        r->names = json_object_new_array();
        r->listed = json_object_new_array();
        if (r->names && r->listed)
                template_each(r, false, add_build, reply_info);
        else
                reply_errno(r, -ENOMEM);
}

void op_template_info(Request *r) {
        if (template_read_ref(r) >= 0)
                template_find(r, on_found);
}

/* Who may use it. */

static void on_update(Request *r) {
        char name[TENANT_MAX + TEMPLATE_REF_MAX];
        bool wants_public = false;
        ErrorText error = {};

        if (!r->template.own) {
                if (r->template.cubed_id[0])
                        request_reply_error(r, MHD_HTTP_FORBIDDEN, "You don't have access to sandbox template '%s'", r->ref.name);
                else
                        reply_no_template(r);
                return;
        }
        int k = field_bool(r->json, "public", &wants_public, &error);
        if (k >= 0 && wants_public)
                k = error_text(&error, "Templates are their tenant's alone on this host; its administrator makes those that all may use");
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        JsonMaker m = json_maker_new();
        json_object *names = json_object_new_array();
        (void) snprintf(name, sizeof(name), "%s/%s", r->tenant, r->template.name);
        if (!json_append(names, json_object_new_string(name))) {
                json_object_put(names);
                names = NULL;
        }
        json_put(&m, "names", names);
        request_reply_json(r, MHD_HTTP_OK, json_maker_done(&m));
}

void op_template_update(Request *r) {
        if (template_read_ref(r) >= 0)
                template_find(r, on_update);
}
