/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "gateway/bus-json.h"
#include "gateway/json-maker.h"
#include "gateway/sandbox-json.h"
#include "gateway/template-json.h"

#define MEBIBYTE (1024 * 1024)

/* A name of cubed's: name, uid and id, as in ListTemplateNames. */
static json_object *name_entry(json_object *p, const char *name) {
        json_object *e = json_object_new_array();

        if (json_append(e, json_object_new_string(name)) && json_append(e, json_object_new_uint64(info_u64(p, "Owner"))) &&
            json_append(e, json_object_new_string(info_string(p, "Id"))))
                return e;
        json_object_put(e);
        return NULL;
}

/* With whose it is, which no name says. */
static json_object *nameless_entry(json_object *p) {
        json_object *e = name_entry(p, "");

        if (!e || json_append(e, json_object_new_string(info_string(p, "Tenant"))))
                return e;
        json_object_put(e);
        return NULL;
}

bool template_add_names(json_object *p, json_object *names) {
        json_object *more = info_get(p, "Aliases");
        size_t n = json_object_is_type(more, json_type_array) ? json_object_array_length(more) : 0;
        const char *name = info_string(p, "Name");
        bool ok = !*name || json_append(names, name_entry(p, name));

        for (size_t i = 0; ok && i < n; i++)
                ok = json_append(names, name_entry(p, strempty(json_object_get_string(json_object_array_get_idx(more, i)))));
        return ok && (*name || n > 0 || json_append(names, nameless_entry(p)));
}

static bool has(json_object *list, const char *s) {
        for (size_t i = 0; i < json_object_array_length(list); i++)
                if (streq(strempty(json_object_get_string(json_object_array_get_idx(list, i))), s))
                        return true;
        return false;
}

bool template_called(json_object *p, const char *tenant, uint32_t uid, Called *ret, bool *ret_failed) {
        json_object *entries = json_object_new_array();
        char full[2 * TEMPLATE_REF_MAX];
        TemplateName n;

        *ret = (Called) { .names = json_object_new_array(), .aliases = json_object_new_array() };
        bool ok = ret->names && ret->aliases && template_add_names(p, entries);
        for (size_t i = 0; ok && i < json_object_array_length(entries); i++) {
                if (!template_name_parse(json_object_array_get_idx(entries, i), tenant, uid, &n))
                        continue;
                ret->own = n.own;
                if (!*ret->name)
                        strcpy(ret->name, n.name);
                if (n.is_build) {
                        memcpy(ret->build, n.tag, sizeof(ret->build));
                        continue;
                }
                ret->is_default = ret->is_default || streq(n.tag, DEFAULT_TAG);
                (void) snprintf(full, sizeof(full), "%s:%s", n.name, n.host && streq(n.tag, DEFAULT_TAG) ? "latest" : n.tag);
                ok = json_append(ret->names, json_object_new_string(full)) &&
                     (has(ret->aliases, n.name) || json_append(ret->aliases, json_object_new_string(n.name)));
        }
        json_object_put(entries);
        *ret_failed = !ok;
        /* The host's without a name are listed as well. */
        return ok && (*ret->name || info_u64(p, "Owner") == 0);
}

void called_done(Called *c) {
        json_object_put(c->names);
        json_object_put(c->aliases);
}

json_object *template_to_json(const char *tenant, json_object *p, const Called *c) {
        const char *id = info_string(p, "Id");
        char public_id[TEMPLATE_ID_SIZE];
        JsonMaker m = json_maker_new();

        template_public_id(tenant, c->name, public_id);
        json_put_string(&m, "templateID", c->own ? public_id : id);
        json_put_string(&m, "buildID", c->own && *c->build ? c->build : id);
        json_put(&m, "public", json_object_new_boolean(!c->own));
        json_put(&m, "aliases", json_object_get(c->aliases));
        json_put(&m, "names", json_object_get(c->names));
        json_put(&m, "cpuCount", json_object_new_uint64(info_u64(p, "CPUs")));
        json_put(&m, "memoryMB", json_object_new_uint64(info_u64(p, "Memory") / MEBIBYTE));
        json_put(&m, "diskSizeMB", json_object_new_uint64(info_u64(p, "Disk") / MEBIBYTE));
        json_put_string(&m, "buildStatus", "ready");
        json_put_time(&m, "createdAt", info_u64(p, "CreatedTimestamp"));
        json_put_time(&m, "updatedAt", info_u64(p, "CreatedTimestamp"));
        json_put_string(&m, "envdVersion", ENVD_VERSION);
        return json_maker_done(&m);
}

json_object *template_build_to_json(json_object *p, const Called *c) {
        JsonMaker m = json_maker_new();

        json_put_string(&m, "buildID", c->own && *c->build ? c->build : info_string(p, "Id"));
        json_put_string(&m, "status", "ready");
        json_put_time(&m, "createdAt", info_u64(p, "CreatedTimestamp"));
        json_put_time(&m, "updatedAt", info_u64(p, "CreatedTimestamp"));
        json_put_time(&m, "finishedAt", info_u64(p, "CreatedTimestamp"));
        json_put(&m, "cpuCount", json_object_new_uint64(info_u64(p, "CPUs")));
        json_put(&m, "memoryMB", json_object_new_uint64(info_u64(p, "Memory") / MEBIBYTE));
        json_put(&m, "diskSizeMB", json_object_new_uint64(info_u64(p, "Disk") / MEBIBYTE));
        json_put_string(&m, "envdVersion", ENVD_VERSION);
        return json_maker_done(&m);
}
