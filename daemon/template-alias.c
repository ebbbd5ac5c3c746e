/* SPDX-License-Identifier: Apache-2.0 */

/* Naming templates anew, as the manager's clients ask for it. The names themselves are the store's. */

#include <stdio.h>

#include "daemon/audit.h"
#include "daemon/manager-private.h"
#include "dbus/bus-errors.h"

/* Children at a time, and names that one template may have. */
#define NAMINGS_MAX 16U
#define NAMES_MAX 256U

/* Waits for the child. */
typedef struct Naming {
        Manager *manager;
        char *name, *id;           /* id: NULL when the name is taken away */
        char tenant[TENANT_NAME_MAX];
        uid_t actor;
        TemplateRemoveDone done;
        void *userdata;
} Naming;

static Naming *naming_free(Naming *n) {
        if (!n)
                return NULL;
        free(n->name);
        free(n->id);
        free(n);
        return NULL;
}
DEFINE_CLEANUP(Naming *, naming_free);

void manager_tell_renamed(Manager *m) {
        for (size_t i = 0; i < m->templates->n_templates; i++) {
                Template *t = m->templates->templates[i];
                if (t->renamed && m->hooks && m->hooks->template_changed)
                        m->hooks->template_changed(m, t);
                t->renamed = false;
        }
}

static void on_named(TemplateStore *store, const char *id, int r, const char *message, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_(naming_freep) Naming *n = userdata;

        manager_tell_renamed(n->manager);
        if (r < 0)
                (void) sd_bus_error_setf(&e, BUS_ERROR_INTERNAL, "Name %s could not be changed: %s", n->name,
                                         isempty(message) ? strerror(-r) : message);
        else
                audit_template_named(n->manager->audit, n->actor, n->tenant, n->name, n->id);
        n->done(n->manager, r < 0 ? &e : NULL, n->userdata);
}

static int check(const Manager *m, const char *name, const Template *t, sd_bus_error *error) {
        if (template_store_count_jobs(m->templates, STORE_JOB_NAME) >= NAMINGS_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "%u names are being changed already; try again", NAMINGS_MAX);
        if (t && template_count_aliases(t) >= NAMES_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_NO_RESOURCES, "Template %s has %u names; take one away before it gets %s",
                                         t->id, NAMES_MAX, name);
        return 0;
}

int manager_name_template(Manager *m, const char *name, Template *t, bool take_away, uid_t actor, TemplateRemoveDone done,
                          void *userdata, sd_bus_error *error) {
        Template *target = take_away ? NULL : t;

        int r = check(m, name, target, error);
        if (r < 0)
                return r;
        _cleanup_(naming_freep) Naming *n = new0(Naming, 1);
        if (!n)
                return sd_bus_error_set_errno(error, ENOMEM);
        *n = (Naming) { .manager = m, .name = strdup(name), .id = target ? strdup(target->id) : NULL, .actor = actor, .done = done,
                        .userdata = userdata };
        tenant_name_copy(n->tenant, t->tenant);
        if (!n->name || (target && !n->id))
                return sd_bus_error_set_errno(error, ENOMEM);
        r = template_store_set_name(m->event, m->templates, t->owner_uid, t->tenant, name, target, on_named, n);
        if (r < 0)
                return sd_bus_error_set_errnof(error, -r, "Name %s can't be changed: %s", name, strerror(-r));
        (void) TAKE_PTR(n);
        return 0;
}
