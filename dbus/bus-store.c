/* SPDX-License-Identifier: Apache-2.0 */

/* What a caller does with what is in the store: naming templates, taking them from host to host, freeing what nothing
 * refers to. */

#include <stdio.h>

#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"
#include "dbus/bus-tenant.h"

int bus_parse_template_name(const char *s, char **ret_name, char **ret_tag, sd_bus_error *error) {
        int r = template_ref_parse(s, ret_name, ret_tag);
        if (r == -EINVAL)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "'%s' is not NAME or NAME:TAG: letters, digits and . _ -, at most 63 each", s);
        return r;
}

static void on_done(Manager *m, const sd_bus_error *error, void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;

        if (sd_bus_error_is_set(error))
                (void) sd_bus_reply_method_error(call, error);
        else
                (void) sd_bus_reply_method_return(call, NULL);
}

/* Where one of the actor's tenants alone has that name. */
static Template *find_of_tenants(const TemplateStore *store, uid_t actor, const char *name, const char *tag) {
        Template *found = NULL;

        for (size_t i = 0; i < store->n_templates; i++) {
                Template *t = store->templates[i];

                if (t->owner_uid != actor || template_store_find_name(store, actor, t->tenant, name, tag) != t)
                        continue;
                if (found)
                        return NULL;
                found = t;
        }
        return found;
}

/* The template whose name is to be taken away; by that name alone. */
static int find_named(uid_t actor, const char *name, const char *tag, Template **ret, sd_bus_error *error) {
        const TemplateStore *store = bus_front->manager->templates;
        Template *t = template_store_find_name(store, actor, NULL, name, tag);

        if (!t)
                t = template_store_find_name(store, 0, NULL, name, tag);
        if (!t)
                t = find_of_tenants(store, actor, name, tag);
        if (!t)
                return sd_bus_error_setf(error, BUS_ERROR_NO_SUCH_TEMPLATE,
                                         "No template has the name '%s:%s'; 'cubectl template list' shows what there is", name, tag);
        *ret = t;
        return 0;
}

int bus_method_alias_template(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_free_ char *name = NULL, *tag = NULL;
        char full[BUS_TEMPLATE_NAME_MAX];
        const char *alias, *ref;
        Template *t;
        uid_t actor;

        int r = sd_bus_message_read(m, "ss", &alias, &ref);
        if (r < 0)
                return r;
        r = bus_actor(m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_parse_template_name(alias, &name, &tag, error);
        if (r >= 0)
                r = *ref ? bus_find_template(actor, NULL, ref, &t, error) : find_named(actor, name, tag, &t, error);
        if (r < 0)
                return r;

        r = bus_authorize_template(m, t, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        (void) snprintf(full, sizeof(full), "%s:%s", name, tag);
        return bus_keep_call(m, manager_name_template(bus_front->manager, full, t, !*ref, actor, on_done, sd_bus_message_ref(m), error));
}

static int append_names(sd_bus_message *reply, const Template *t) {
        char name[BUS_TEMPLATE_NAME_MAX];
        int r = 0;

        if (t->named)
                r = sd_bus_message_append(reply, "(sus)", bus_template_name(t, name), (uint32_t) t->owner_uid, t->id);
        for (char **a = t->aliases; a && *a && r >= 0; a++)
                r = sd_bus_message_append(reply, "(sus)", *a, (uint32_t) t->owner_uid, t->id);
        return r;
}

int bus_method_list_template_names(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_bus_message_ sd_bus_message *reply = NULL;
        const TemplateStore *store = bus_front->manager->templates;
        uid_t actor;

        int r = bus_actor(m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(sus)");
        for (size_t i = 0; r >= 0 && i < store->n_templates; i++)
                if (bus_template_visible(store->templates[i], actor, NULL))
                        r = append_names(reply, store->templates[i]);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

static void on_collected(Manager *m, const sd_bus_error *error, const GarbageItem *items, size_t n, const char *note,
                         void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata, *reply = NULL;

        if (sd_bus_error_is_set(error)) {
                (void) sd_bus_reply_method_error(call, error);
                return;
        }
        int r = sd_bus_message_new_method_return(call, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(sst)");
        for (size_t i = 0; i < n && r >= 0; i++)
                r = sd_bus_message_append(reply, "(sst)", items[i].kind, items[i].name, items[i].bytes);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r >= 0)
                r = sd_bus_message_append(reply, "s", note);
        if (r >= 0)
                r = sd_bus_send(NULL, reply, NULL);
        if (r < 0)
                bus_reply_error(call, NULL, r);
}

int bus_method_collect_garbage(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        bool dry_run = false;
        const BusOption options[] = { { "dry-run", BUS_OPTION_BOOL, &dry_run, 0 } };
        uid_t actor;

        int r = bus_actor(m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r < 0)
                return r;
        return bus_keep_call(m, manager_collect_garbage(bus_front->manager, actor, dry_run, on_collected,
                                                        sd_bus_message_ref(m), error));
}

int bus_parse_aliases(char **aliases, sd_bus_error *error) {
        size_t n = 0;

        for (char **a = aliases; a && *a; a++) {
                _cleanup_free_ char *name = NULL, *tag = NULL;
                char *full;
                int r = bus_parse_template_name(*a, &name, &tag, error);

                if (r < 0)
                        return r;
                if (asprintf(&full, "%s:%s", name, tag) < 0)
                        return -ENOMEM;
                free(*a);
                *a = full;
                if (++n > TEMPLATE_ALIASES_MAX)
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "More than %u aliases", TEMPLATE_ALIASES_MAX);
        }
        return 0;
}

int bus_method_export_template(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        char path[CUBE_BUS_PATH_MAX];
        const char *ref;
        Job *job = NULL;
        Template *t;
        uid_t actor;
        int fd;

        int r = sd_bus_message_read(m, "sh", &ref, &fd);
        if (r < 0)
                return r;
        r = bus_actor(m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_find_template(actor, NULL, ref, &t, error);
        if (r < 0)
                return r;

        r = bus_authorize_template(m, t, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = manager_export_template(bus_front->manager, t, actor, fd, &job, error);
        return r < 0 ? r : sd_bus_reply_method_return(m, "o", bus_path_put(path, CUBE_BUS_PATH_JOB, job->id));
}

int bus_method_import_template(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_free_ char *base = NULL, *tag = NULL;
        _cleanup_strv_ char **aliases = NULL;
        TemplateImportParams params = {};
        const BusOption options[] = {
                { "alias", BUS_OPTION_STRV, &aliases, 0 },
                { "tenant", BUS_OPTION_STRING, &params.tenant, 0 },
        };
        char path[CUBE_BUS_PATH_MAX];
        const char *name;
        Job *job = NULL;

        int r = sd_bus_message_read(m, "sh", &name, &params.in_fd);
        if (r < 0)
                return r;
        const BusAccess access = {
                .action = POLKIT_TEMPLATES, .owner = BUS_OWNER_NONE, .key = "template", .value = name,
        };
        r = bus_authorize(m, &access, &params.owner_uid, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r >= 0)
                r = bus_tenant_check(params.owner_uid, params.tenant, error);
        if (r >= 0 && *name)
                r = bus_parse_template_name(name, &base, &tag, error);
        if (r >= 0)
                r = bus_parse_aliases(aliases, error);
        if (r < 0)
                return r;
        params.name = base;
        params.tag = tag;
        params.aliases = aliases;
        r = manager_import_template(bus_front->manager, &params, &job, error);
        return r < 0 ? r : sd_bus_reply_method_return(m, "o", bus_path_put(path, CUBE_BUS_PATH_JOB, job->id));
}
