/* SPDX-License-Identifier: Apache-2.0 */

/* Tags: names of a tenant's template, each of which stands for one of its builds. */

#include <stdio.h>

#include "gateway/build-spec.h"
#include "gateway/json-maker.h"
#include "gateway/op-common.h"

typedef struct Tags {
        char tags[BUILD_TAGS_MAX][TEMPLATE_REF_MAX];
        size_t n;
} Tags;

/* Of the body, with r->ref of its field; or the request is answered. */
static int read_body(Request *r, const char *field, Tags *ret) {
        const char *text = NULL;
        ErrorText error = {};

        *ret = (Tags) {};
        int k = field_string(r->json, field, &text, &error);
        if (k == 0)
                k = error_text(&error, "validation error: field '%s' is missing", field);
        if (k >= 0)
                k = template_ref_parse(text, r->tenant, &r->ref) == -EINVAL
                            ? error_text(&error, "Invalid target template format: %.100s", text) : 0;
        if (k >= 0)
                k = tags_parse(r->json, ret->tags, &ret->n, &error);
        if (k >= 0 && ret->n == 0)
                k = error_text(&error, "At least one tag is required");
        if (k < 0)
                reply_bad(r, k, &error);
        return k;
}

/* Only of one's own; false: answered. */
static bool is_theirs(Request *r) {
        if (!r->template.name_is_known)
                reply_no_template(r);
        else if (!r->template.own)
                request_reply_error(r, MHD_HTTP_FORBIDDEN, "You don't have access to sandbox template '%s'", r->ref.name);
        else
                return true;
        return false;
}

static void alias(Request *r, const char *name, const char *tag, const char *cubed_id, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char full[CUBED_NAME_MAX];

        template_cubed_name(r->tenant, name, tag, full);
        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "AliasTemplate", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "ss", full, cubed_id);
        cubed_call_asking(r, m, k, done);
}

/* Setting. */

static void reply_tagged(Request *r, const Tags *t) {
        json_object *list = json_object_new_array();
        char build[BUILD_ID_SIZE];
        bool ok = list;

        for (size_t i = 0; ok && i < t->n; i++)
                ok = json_append(list, json_object_new_string(t->tags[i]));
        template_names_build(r->names, r->tenant, r->gateway->uid, r->template.cubed_id, build);
        JsonMaker m = json_maker_new();
        json_put_string(&m, "buildID", build);
        json_put(&m, "tags", ok ? list : NULL);
        request_reply_json(r, MHD_HTTP_CREATED, json_maker_done(&m));
}

static void set_next(Request *r);

static void on_set(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error)
                reply_cubed_error(r, error);
        else
                set_next(r);
}

static void set_next(Request *r) {
        Tags t;

        if (read_body(r, "target", &t) < 0)
                return;
        if (r->n_done == t.n)
                reply_tagged(r, &t);
        else
                alias(r, r->template.name, t.tags[r->n_done++], r->template.cubed_id, on_set);
}

static void set_found(Request *r) {
        if (!is_theirs(r))
                return;
        if (!r->template.cubed_id[0])
                request_reply_error(r, MHD_HTTP_NOT_FOUND, "Template '%s' with tag '%s' not found", r->ref.name,
                                    r->ref.tag[0] ? r->ref.tag : DEFAULT_TAG);
        else
                set_next(r);
}

void op_tag(Request *r) {
        Tags t;

        if (read_body(r, "target", &t) >= 0)
                template_find(r, set_found);
}

/* Taking away. */

static void unset_next(Request *r);

static void on_unset(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error)
                reply_cubed_error(r, error);
        else
                unset_next(r);
}

/* By any of its tags; NULL: it has no such tag. */
static bool find_tag(Request *r, const char *tag, char ret_name[static TEMPLATE_REF_MAX]) {
        TemplateRef ref = r->ref;
        TemplateFound f;

        (void) snprintf(ref.tag, sizeof(ref.tag), "%s", tag);
        if (template_names_find(r->names, r->tenant, r->gateway->uid, &ref, &f) < 0 || !f.own)
                return false;
        strcpy(ret_name, f.name);
        return true;
}

static void unset_next(Request *r) {
        char name[TEMPLATE_REF_MAX];
        Tags t;

        if (read_body(r, "name", &t) < 0)
                return;
        if (r->n_done == t.n) {
                request_reply(r, MHD_HTTP_NO_CONTENT);
                return;
        }
        /* All of them are known to be there. */
        if (find_tag(r, t.tags[r->n_done++], name))
                alias(r, name, t.tags[r->n_done - 1], "", on_unset);
        else
                unset_next(r);
}

static void unset_found(Request *r) {
        char name[TEMPLATE_REF_MAX];
        Tags t;

        if (!is_theirs(r) || read_body(r, "name", &t) < 0)
                return;
        for (size_t i = 0; i < t.n; i++)
                if (!find_tag(r, t.tags[i], name)) {
                        request_reply_error(r, MHD_HTTP_NOT_FOUND, "tag '%s' does not exist for template '%s'", t.tags[i], r->ref.name);
                        return;
                }
        unset_next(r);
}

void op_untag(Request *r) {
        Tags t;

        if (read_body(r, "name", &t) < 0)
                return;
        for (size_t i = 0; i < t.n; i++)
                if (streq(t.tags[i], DEFAULT_TAG)) {
                        request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Cannot delete the '" DEFAULT_TAG "' tag");
                        return;
                }
        if (r->ref.tag[0])
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Template name should not contain a tag, use the 'tags' field instead");
        else
                template_find(r, unset_found);
}

/* Listing. */

static uint64_t created_of(json_object *all, const char *cubed_id) {
        for (size_t i = 0; i < json_object_array_length(all); i++) {
                json_object *o = json_object_array_get_idx(all, i);
                if (streq(strempty(json_object_get_string(json_object_array_get_idx(o, 0))), cubed_id))
                        return json_object_get_uint64(json_object_array_get_idx(o, 3));
        }
        return 0;
}

static json_object *tag_to_json(const Request *r, const TemplateName *n, json_object *all) {
        char build[BUILD_ID_SIZE];
        JsonMaker m = json_maker_new();

        template_names_build(r->names, r->tenant, r->gateway->uid, n->cubed_id, build);
        json_put_string(&m, "tag", n->tag);
        json_put_string(&m, "buildID", build);
        json_put_time(&m, "createdAt", created_of(all, n->cubed_id));
        return json_maker_done(&m);
}

static void on_templates(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        json_object *all = NULL, *list = json_object_new_array();
        TemplateName n;

        int k = error ? 0 : bus_to_json(reply, &all);
        if (error || k < 0 || !list) {
                json_object_put(list);
                if (error)
                        reply_cubed_error(r, error);
                else
                        reply_errno(r, k < 0 ? k : -ENOMEM);
                return;
        }
        bool ok = true;
        for (size_t i = 0; ok && i < json_object_array_length(r->names); i++)
                if (template_name_parse(json_object_array_get_idx(r->names, i), r->tenant, r->gateway->uid, &n) && n.own && !n.is_build &&
                    streq(n.name, r->template.name))
                        ok = json_append(list, tag_to_json(r, &n, all));
        json_object_put(all);
        if (ok) {
                request_reply_json(r, MHD_HTTP_OK, list);
                return;
        }
        json_object_put(list);
        reply_errno(r, -ENOMEM);
}

static void list_found(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        if (!r->template.own) {
                if (r->template.cubed_id[0])
                        request_reply_error(r, MHD_HTTP_FORBIDDEN, "You don't have access to sandbox template '%s'", r->ref.name);
                else
                        reply_no_template(r);
                return;
        }
        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "ListTemplates", &m);
        cubed_call(r, m, k, on_templates);
}

void op_tags(Request *r) {
        if (template_read_ref(r) >= 0)
                template_find(r, list_found);
}
