/* SPDX-License-Identifier: Apache-2.0 */

/* Removing templates, as the manager's clients ask for it: refused while something stands on one, which is named. */

#include <stdio.h>

#include "daemon/audit.h"
#include "daemon/log.h"
#include "daemon/manager-private.h"
#include "dbus/bus-errors.h"

typedef struct Removal {
        Manager *manager;
        TemplateRemoveDone done;
        void *userdata;
} Removal;

static void on_removed(TemplateStore *store, const char *id, int r, const char *message, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_free_ Removal *q = userdata;

        if (r < 0) {
                (void) sd_bus_error_setf(&e, BUS_ERROR_INTERNAL, "Files of template %s could not be removed: %s", id,
                                         isempty(message) ? strerror(-r) : message);
                log_warning("%s", e.message);
        }
        if (q->done)
                q->done(q->manager, r < 0 ? &e : NULL, q->userdata);
}

const Snapshot *manager_next_snapshot_on(const Manager *m, const Template *t, const Snapshot *after) {
        for (size_t i = 0; i < m->snapshots->n_snapshots; i++) {
                const Snapshot *s = m->snapshots->snapshots[i];
                if (after)
                        after = s == after ? NULL : after;
                else if (s->kind != SNAPSHOT_TEMPLATE && streq(s->template_id, t->id))
                        return s;
        }
        return NULL;
}

/* Ids in words, "2 sandboxes (a, b)": as many as fit, and only what the actor may know. */
typedef struct Users {
        const char *one, *many;
        uid_t actor;
        char ids[400];
        size_t size, total, named;
} Users;

static void users_add(Users *u, const char *id, uid_t owner) {
        u->total++;
        if ((u->actor != 0 && u->actor != owner) || u->size + strlen(id) + sizeof(", ...") > sizeof(u->ids))
                return;
        u->size += (size_t) snprintf(u->ids + u->size, sizeof(u->ids) - u->size, "%s%s", u->named++ > 0 ? ", " : "", id);
}

static void users_print(const Users *u, char *ret, size_t size) {
        if (u->total == 0)
                *ret = 0;
        else
                (void) snprintf(ret, size, "%zu %s%s%s%s%s", u->total, u->total == 1 ? u->one : u->many, u->named > 0 ? " (" : "",
                                u->ids, u->named > 0 && u->named < u->total ? ", ..." : "", u->named > 0 ? ")" : "");
}

static void find_sandboxes(const Manager *m, const Template *t, Users *u) {
        for (size_t i = 0; i < m->n_sandboxes; i++) {
                const Sandbox *s = m->sandboxes[i];
                if (s->template_id && streq(s->template_id, t->id))
                        users_add(u, s->id, s->owner_uid);
        }
        u->total = MAX(u->total, (size_t) t->n_users);
}

/* What a paused sandbox lies in goes with it, and layers go with those above. */
static void find_snapshots(const Manager *m, const Template *t, Users *u) {
        for (const Snapshot *s = NULL; (s = manager_next_snapshot_on(m, t, s));)
                if (s->kind == SNAPSHOT_USER || s->kind == SNAPSHOT_CHECKPOINT)
                        users_add(u, s->id, s->owner_uid);
}

static int check_unused(const Manager *m, const Template *t, uid_t actor, sd_bus_error *error) {
        Users sandboxes = { .one = "sandbox", .many = "sandboxes", .actor = actor };
        Users snapshots = { .one = "snapshot", .many = "snapshots", .actor = actor };
        char a[512], b[512];

        if (t->n_users == 0 && !manager_next_snapshot_on(m, t, NULL))
                return 0;
        if (t->n_users > 0)
                find_sandboxes(m, t, &sandboxes);
        find_snapshots(m, t, &snapshots);
        users_print(&sandboxes, a, sizeof(a));
        users_print(&snapshots, b, sizeof(b));
        if (!*a && !*b)
                return sd_bus_error_setf(error, BUS_ERROR_TEMPLATE_IN_USE, "Template %s:%s (%s) is in use by what is just being removed; "
                                         "try again", t->name, t->tag, t->id);
        return sd_bus_error_setf(error, BUS_ERROR_TEMPLATE_IN_USE, "Template %s:%s (%s) is in use by %s%s%s; remove them first",
                                 t->name, t->tag, t->id, a, *a && *b ? " and " : "", b);
}

int manager_remove_template(Manager *m, Template *t, uid_t actor, TemplateRemoveDone done, void *userdata,
                            sd_bus_error *error) {
        char name[160], tenant[TENANT_NAME_MAX];

        int r = check_unused(m, t, actor, error);
        if (r < 0)
                return r;
        if (template_store_is_busy(m->templates, STORE_JOB_NAME, t->id))
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Template %s is being given a name; try again", t->id);
        _cleanup_free_ Removal *q = new0(Removal, 1);
        if (!q)
                return sd_bus_error_set_errno(error, ENOMEM);
        *q = (Removal) { m, done, userdata };

        /* It is still whole while that is told; then it leaves the store. */
        (void) snprintf(name, sizeof(name), "%s:%s", t->name, t->tag);
        tenant_name_copy(tenant, t->tenant);
        _cleanup_free_ char *id = strdup(t->id);
        if (!id)
                return sd_bus_error_set_errno(error, ENOMEM);
        if (m->hooks && m->hooks->template_removed)
                m->hooks->template_removed(m, t);
        r = template_store_remove(m->event, t, on_removed, q);
        if (r < 0) {
                if (m->hooks && m->hooks->template_added)
                        m->hooks->template_added(m, t);
                return sd_bus_error_set_errnof(error, -r, "Template %s can't be removed: %s", name, strerror(-r));
        }
        (void) TAKE_PTR(q);
        manager_drop_warm_snapshot(m, id);
        audit_template_removed(m->audit, actor, tenant, name, id);
        return 0;
}
