/* SPDX-License-Identifier: Apache-2.0 */

/* Templates, as far as they are there: those of root, which all tenants may use. */

#include <stdio.h>

#include "gateway/op-common.h"

#define MEBIBYTE (1024 * 1024)

/* A name of cubed's, NAME:TAG, and the same as clients ask for it, without the tag. */
static int add_name(json_object *names, json_object *aliases, const char *name) {
        size_t n = strcspn(name, ":");

        if (!*name)
                return 0;
        if (json_object_array_add(names, json_object_new_string(name)) < 0)
                return -ENOMEM;
        for (size_t i = 0; i < json_object_array_length(aliases); i++) {
                const char *other = json_object_get_string(json_object_array_get_idx(aliases, i));
                if (strlen(other) == n && memcmp(other, name, n) == 0)
                        return 0;
        }
        return json_object_array_add(aliases, json_object_new_string_len(name, (int) n)) < 0 ? -ENOMEM : 0;
}

/* Both lists are the caller's. */
static int collect_names(json_object *p, json_object *names, json_object *aliases) {
        json_object *more = info_get(p, "Aliases");

        int r = names && aliases ? add_name(names, aliases, info_string(p, "Name")) : -ENOMEM;
        for (size_t i = 0; r >= 0 && json_object_is_type(more, json_type_array) && i < json_object_array_length(more); i++)
                r = add_name(names, aliases, strempty(json_object_get_string(json_object_array_get_idx(more, i))));
        return r;
}

static json_object *template_to_json(json_object *p) {
        json_object *o = json_object_new_object(), *names = json_object_new_array(), *aliases = json_object_new_array();
        const char *id = info_string(p, "Id");
        char created[TIMESTAMP_MAX];

        (void) timestamp_format(created, info_u64(p, "CreatedTimestamp"));
        if (o && collect_names(p, names, aliases) >= 0 &&
            json_object_object_add(o, "templateID", json_object_new_string(id)) == 0 &&
            json_object_object_add(o, "buildID", json_object_new_string(id)) == 0 &&
            json_object_object_add(o, "public", json_object_new_boolean(true)) == 0 &&
            json_object_object_add(o, "aliases", json_object_get(aliases)) == 0 &&
            json_object_object_add(o, "names", json_object_get(names)) == 0 &&
            json_object_object_add(o, "cpuCount", json_object_new_uint64(info_u64(p, "CPUs"))) == 0 &&
            json_object_object_add(o, "memoryMB", json_object_new_uint64(info_u64(p, "Memory") / MEBIBYTE)) == 0 &&
            json_object_object_add(o, "diskSizeMB", json_object_new_uint64(info_u64(p, "Disk") / MEBIBYTE)) == 0 &&
            json_object_object_add(o, "buildStatus", json_object_new_string("ready")) == 0 &&
            json_object_object_add(o, "createdAt", json_object_new_string(created)) == 0 &&
            json_object_object_add(o, "updatedAt", json_object_new_string(created)) == 0 &&
            json_object_object_add(o, "envdVersion", json_object_new_string(ENVD_VERSION)) == 0) {
                json_object_put(names);
                json_object_put(aliases);
                return o;
        }
        json_object_put(names);
        json_object_put(aliases);
        json_object_put(o);
        return NULL;
}

static bool is_public(json_object *properties) {
        return info_get(properties, "Owner") && info_u64(properties, "Owner") == 0;
}

static void on_templates(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        json_object *all = json_object_new_array(), *list = json_object_new_array();

        int k = all && list ? 0 : -ENOMEM;
        if (k >= 0 && !error)
                k = bus_objects_to_json(reply, CUBE_BUS_TEMPLATE, all);
        for (size_t i = 0; k >= 0 && !error && i < json_object_array_length(all); i++) {
                json_object *p = json_object_array_get_idx(all, i), *o = is_public(p) ? template_to_json(p) : NULL;
                if (is_public(p) && (!o || json_object_array_add(list, o) < 0)) {
                        json_object_put(o);
                        k = -ENOMEM;
                }
        }
        json_object_put(all);
        if (!error && k >= 0) {
                request_reply_json(r, MHD_HTTP_OK, list);
                return;
        }
        json_object_put(list);
        if (error)
                reply_cubed_error(r, error);
        else
                reply_errno(r, k);
}

void op_templates(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int k = cubed_message(r, CUBE_BUS_PATH, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", &m);
        cubed_call(r, m, k, on_templates);
}

static void get_template(Request *r, CubedDone done) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char name[2 * TEMPLATE_REF_MAX];

        (void) snprintf(name, sizeof(name), r->ref.tag[0] ? "%s:%s" : "%s%s", r->ref.name, r->ref.tag);
        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "GetTemplate", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "s", name);
        cubed_call(r, m, k, done);
}

static void reply_no_template(Request *r) {
        request_reply_error(r, MHD_HTTP_NOT_FOUND, "template '%.100s' not found", r->template_ref);
}

/* 0, or the request is answered. */
static int read_ref(Request *r) {
        int k = template_ref_parse(r->template_ref, r->tenant, &r->ref);

        if (k == -EINVAL)
                request_reply_error(r, MHD_HTTP_BAD_REQUEST, "Invalid template reference: %.100s", r->template_ref);
        else if (k < 0)
                reply_no_template(r);
        return k;
}

static void on_alias(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        const char *path = NULL, *id = NULL;
        json_object *o;

        if (error && sd_bus_error_has_name(error, BUS_ERROR_NO_SUCH_TEMPLATE)) {
                reply_no_template(r);
                return;
        }
        if (error) {
                reply_cubed_error(r, error);
                return;
        }
        int k = sd_bus_message_read(reply, "o", &path);
        if (k >= 0)
                id = startswith(path, CUBE_BUS_PATH_TEMPLATE "/");
        if (!id) {
                reply_errno(r, k < 0 ? k : -EBADMSG);
                return;
        }
        o = json_object_new_object();
        if (o && json_object_object_add(o, "templateID", json_object_new_string(id)) == 0 &&
            json_object_object_add(o, "public", json_object_new_boolean(true)) == 0) {
                request_reply_json(r, MHD_HTTP_OK, o);
                return;
        }
        json_object_put(o);
        reply_errno(r, -ENOMEM);
}

void op_alias(Request *r) {
        if (read_ref(r) >= 0)
                get_template(r, on_alias);
}

/* Removing: snapshots only, since no template belongs to a tenant. */

static void on_not_theirs(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        if (error && sd_bus_error_has_name(error, BUS_ERROR_NO_SUCH_TEMPLATE))
                reply_no_template(r);
        else if (error)
                reply_cubed_error(r, error);
        else
                request_reply_error(r, MHD_HTTP_FORBIDDEN, "template '%.100s' belongs to the host", r->template_ref);
}

static void on_found(Request *r, const char *snapshot) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        if (!snapshot && r->ref.own) {
                reply_no_template(r);
                return;
        }
        if (!snapshot) {
                get_template(r, on_not_theirs);
                return;
        }
        int k = cubed_message(r, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "RemoveSnapshot", &m);
        if (k >= 0)
                k = sd_bus_message_append(m, "s", snapshot);
        cubed_call(r, m, k, on_done_no_content);
}

void op_remove(Request *r) {
        if (read_ref(r) >= 0)
                snapshot_find(r, on_found);
}
