/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/socket.h>

#include "daemon/log.h"
#include "dbus/bus-front.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-policy.h"
#include "dbus/bus-turn.h"

BusFront *bus_front = NULL;


static int not_found(sd_bus_error *error, const char *name, const char *what, const char *id) {
        return sd_bus_error_setf(error, name, "No %s '%s'", what, id);
}

static int find_sandbox(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret_found,
                        sd_bus_error *error) {
        const BusFront *f = userdata;
        const char *id = bus_path_id(path, CUBE_BUS_PATH_SANDBOX);
        if (!id)
                return 0;

        if (f->leaving_sandbox && streq(f->leaving_sandbox->id, id))
                *ret_found = (void *) f->leaving_sandbox;
        else
                *ret_found = manager_find_sandbox(f->manager, id);
        return *ret_found ? 1 : not_found(error, BUS_ERROR_NO_SUCH_SANDBOX, "sandbox", id);
}

Template *bus_template_by_id(Manager *m, const char *id) {
        for (size_t i = 0; i < m->templates->n_templates; i++)
                if (streq(m->templates->templates[i]->id, id))
                        return m->templates->templates[i];
        return NULL;
}

static int find_template(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret_found,
                         sd_bus_error *error) {
        const BusFront *f = userdata;
        const char *id = bus_path_id(path, CUBE_BUS_PATH_TEMPLATE);
        if (!id)
                return 0;

        if (f->leaving_template && streq(f->leaving_template->id, id))
                *ret_found = (void *) f->leaving_template;
        else
                *ret_found = bus_template_by_id(f->manager, id);
        return *ret_found ? 1 : not_found(error, BUS_ERROR_NO_SUCH_TEMPLATE, "template", id);
}

static int find_snapshot(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret_found,
                         sd_bus_error *error) {
        const BusFront *f = userdata;
        const char *id = bus_path_id(path, CUBE_BUS_PATH_SNAPSHOT);
        if (!id)
                return 0;

        if (f->leaving_snapshot && streq(f->leaving_snapshot->id, id)) {
                *ret_found = (void *) f->leaving_snapshot;
                return 1;
        }
        Snapshot *s = snapshot_store_find(f->manager->snapshots, id);
        if (!s || !bus_snapshot_kind(s))
                return not_found(error, BUS_ERROR_NO_SUCH_SNAPSHOT, "snapshot", id);
        *ret_found = s;
        return 1;
}

static int find_job(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret_found,
                    sd_bus_error *error) {
        const BusFront *f = userdata;
        const char *id = bus_path_id(path, CUBE_BUS_PATH_JOB);
        if (!id)
                return 0;

        if (f->leaving_job && streq(f->leaving_job->id, id))
                *ret_found = (void *) f->leaving_job;
        else
                *ret_found = manager_find_job(f->manager, id);
        return *ret_found ? 1 : not_found(error, BUS_ERROR_NO_SUCH_JOB, "job", id);
}

/* ids: what points at the i-th id. */
static int list_paths(const char *prefix, size_t n, const char *(*id)(Manager *m, size_t i), Manager *m, char ***ret) {
        char path[CUBE_BUS_PATH_MAX];
        _cleanup_strv_ char **l = new0(char *, n + 1);
        if (!l)
                return -ENOMEM;

        for (size_t i = 0; i < n; i++) {
                l[i] = strdup(bus_path_put(path, prefix, id(m, i)));
                if (!l[i])
                        return -ENOMEM;
        }
        *ret = TAKE_PTR(l);
        return 0;
}

static const char *sandbox_id(Manager *m, size_t i) {
        return m->sandboxes[i]->id;
}

static const char *template_id(Manager *m, size_t i) {
        return m->templates->templates[i]->id;
}

static const char *snapshot_id(Manager *m, size_t i) {
        return bus_front->snapshots[i]->id;
}

static const char *job_id(Manager *m, size_t i) {
        return m->jobs[i]->id;
}

static int enumerate_sandboxes(sd_bus *bus, const char *prefix, void *userdata, char ***ret, sd_bus_error *error) {
        Manager *m = ((BusFront *) userdata)->manager;
        return list_paths(CUBE_BUS_PATH_SANDBOX, m->n_sandboxes, sandbox_id, m, ret);
}

static int enumerate_templates(sd_bus *bus, const char *prefix, void *userdata, char ***ret, sd_bus_error *error) {
        Manager *m = ((BusFront *) userdata)->manager;
        return list_paths(CUBE_BUS_PATH_TEMPLATE, m->templates->n_templates, template_id, m, ret);
}

static int enumerate_snapshots(sd_bus *bus, const char *prefix, void *userdata, char ***ret, sd_bus_error *error) {
        const BusFront *f = userdata;
        return list_paths(CUBE_BUS_PATH_SNAPSHOT, f->n_snapshots, snapshot_id, f->manager, ret);
}

static int enumerate_jobs(sd_bus *bus, const char *prefix, void *userdata, char ***ret, sd_bus_error *error) {
        Manager *m = ((BusFront *) userdata)->manager;
        return list_paths(CUBE_BUS_PATH_JOB, m->n_jobs, job_id, m, ret);
}

static const struct {
        const char *path, *interface;
        const sd_bus_vtable *vtable;
        sd_bus_object_find_t find;
        sd_bus_node_enumerator_t enumerate;
} kinds[] = {
        { CUBE_BUS_PATH, CUBE_BUS_MANAGER, bus_manager_vtable, NULL, NULL },
        { CUBE_BUS_PATH_SANDBOX, CUBE_BUS_SANDBOX, bus_sandbox_vtable, find_sandbox, enumerate_sandboxes },
        { CUBE_BUS_PATH_TEMPLATE, CUBE_BUS_TEMPLATE, bus_template_vtable, find_template, enumerate_templates },
        { CUBE_BUS_PATH_SNAPSHOT, CUBE_BUS_SNAPSHOT, bus_snapshot_vtable, find_snapshot, enumerate_snapshots },
        { CUBE_BUS_PATH_JOB, CUBE_BUS_JOB, bus_job_vtable, find_job, enumerate_jobs },
};


static void tell_added(Manager *m, const char *prefix, const char *id, const char *signal) {
        char path[CUBE_BUS_PATH_MAX];

        bus_path_put(path, prefix, id);
        (void) sd_bus_emit_signal(m->bus, CUBE_BUS_PATH, CUBE_BUS_MANAGER, signal, "so", id, path);
        (void) sd_bus_emit_object_added(m->bus, path);
}

static void on_sandbox_added(Manager *m, Sandbox *s) {
        tell_added(m, CUBE_BUS_PATH_SANDBOX, s->id, "SandboxNew");
}

static void on_sandbox_changed(Manager *m, Sandbox *s, char **properties) {
        char path[CUBE_BUS_PATH_MAX];
        (void) sd_bus_emit_properties_changed_strv(m->bus, bus_path_put(path, CUBE_BUS_PATH_SANDBOX, s->id),
                                                   CUBE_BUS_SANDBOX, properties);
}

static void on_sandbox_removed(Manager *m, Sandbox *s) {
        char path[CUBE_BUS_PATH_MAX];

        bus_path_put(path, CUBE_BUS_PATH_SANDBOX, s->id);
        bus_front->leaving_sandbox = s;
        (void) sd_bus_emit_object_removed(m->bus, path);
        bus_front->leaving_sandbox = NULL;
        (void) sd_bus_emit_signal(m->bus, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "SandboxRemoved", "ssu", s->id,
                                  strempty(vmm_exit_reason_to_string(s->exit_reason)), s->exit_status);
}

static void on_template_added(Manager *m, Template *t) {
        tell_added(m, CUBE_BUS_PATH_TEMPLATE, t->id, "TemplateNew");
}

static void on_template_changed(Manager *m, Template *t) {
        char path[CUBE_BUS_PATH_MAX];
        (void) sd_bus_emit_properties_changed(m->bus, bus_path_put(path, CUBE_BUS_PATH_TEMPLATE, t->id),
                                              CUBE_BUS_TEMPLATE, "Name", "Aliases", NULL);
}

static void on_template_removed(Manager *m, Template *t) {
        char path[CUBE_BUS_PATH_MAX];

        bus_path_put(path, CUBE_BUS_PATH_TEMPLATE, t->id);
        bus_front->leaving_template = t;
        (void) sd_bus_emit_object_removed(m->bus, path);
        bus_front->leaving_template = NULL;
        (void) sd_bus_emit_signal(m->bus, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "TemplateRemoved", "so", t->id, path);
}

static size_t shown_index(const Snapshot *s) {
        size_t i = 0;
        while (i < bus_front->n_snapshots && bus_front->snapshots[i] != s)
                i++;
        return i;
}

static int keep_shown(const Snapshot *s) {
        BusFront *f = bus_front;

        if (f->n_snapshots == f->n_snapshots_allocated) {
                size_t n = f->n_snapshots_allocated * 2 + 16;
                const Snapshot **l = realloc(f->snapshots, n * sizeof(*l));
                if (!l)
                        return -ENOMEM;
                f->snapshots = l;
                f->n_snapshots_allocated = n;
        }
        f->snapshots[f->n_snapshots++] = s;
        return 0;
}

static void on_snapshot_added(Manager *m, Snapshot *s) {
        if (bus_snapshot_kind(s) && keep_shown(s) >= 0)
                tell_added(m, CUBE_BUS_PATH_SNAPSHOT, s->id, "SnapshotNew");
}

static void on_snapshot_removed(Manager *m, Snapshot *s) {
        char path[CUBE_BUS_PATH_MAX];

        size_t i = shown_index(s);
        if (i == bus_front->n_snapshots)
                return;
        bus_front->snapshots[i] = bus_front->snapshots[--bus_front->n_snapshots];

        bus_path_put(path, CUBE_BUS_PATH_SNAPSHOT, s->id);
        bus_front->leaving_snapshot = s;
        (void) sd_bus_emit_object_removed(m->bus, path);
        bus_front->leaving_snapshot = NULL;
        (void) sd_bus_emit_signal(m->bus, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "SnapshotRemoved", "so", s->id, path);
}

static void on_snapshot_changed(Manager *m, Snapshot *s) {
        char path[CUBE_BUS_PATH_MAX];

        if (!bus_snapshot_kind(s))
                on_snapshot_removed(m, s);
        else if (shown_index(s) == bus_front->n_snapshots)
                on_snapshot_added(m, s);
        else
                (void) sd_bus_emit_properties_changed(m->bus, bus_path_put(path, CUBE_BUS_PATH_SNAPSHOT, s->id),
                                                      CUBE_BUS_SNAPSHOT, "Kind", "Parent", "MemoryBytes", "DiskBytes",
                                                      "StateBytes", "Durable", NULL);
}

static void on_job_added(Manager *m, Job *j) {
        tell_added(m, CUBE_BUS_PATH_JOB, j->id, "JobNew");
}

static void on_job_changed(Manager *m, Job *j) {
        char path[CUBE_BUS_PATH_MAX];
        (void) sd_bus_emit_properties_changed(m->bus, bus_path_put(path, CUBE_BUS_PATH_JOB, j->id), CUBE_BUS_JOB,
                                              "State", "Step", "Progress", "BuildStep", "CachedSteps", "Template", "Error", "ErrorName",
                                              "FinishedTimestamp", NULL);
}

static void on_job_removed(Manager *m, Job *j) {
        char path[CUBE_BUS_PATH_MAX];

        bus_path_put(path, CUBE_BUS_PATH_JOB, j->id);
        bus_front->leaving_job = j;
        (void) sd_bus_emit_object_removed(m->bus, path);
        bus_front->leaving_job = NULL;
        (void) sd_bus_emit_signal(m->bus, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "JobRemoved", "sos", j->id, path,
                                  job_state_to_string(j->state));
}

static const ManagerHooks hooks = {
        .sandbox_added = on_sandbox_added,
        .sandbox_changed = on_sandbox_changed,
        .sandbox_removed = on_sandbox_removed,
        .template_added = on_template_added,
        .template_changed = on_template_changed,
        .template_removed = on_template_removed,
        .snapshot_added = on_snapshot_added,
        .snapshot_changed = on_snapshot_changed,
        .snapshot_removed = on_snapshot_removed,
        .job_added = on_job_added,
        .job_changed = on_job_changed,
        .job_removed = on_job_removed,
};


static int match_name_lost(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        BusFront *f = userdata;
        const char *name, *old, *new;

        if (sd_bus_message_read(m, "sss", &name, &old, &new) < 0 || *name != ':' || *new)
                return 0;

        bus_senders_gone(f->senders, name);
        polkit_client_gone(f->polkit, name);
        manager_client_gone(f->manager, name);
        return 0;
}

typedef struct ClientCheck {
        sd_bus_slot *slot;
        char *name;
} ClientCheck;

static int on_client_checked(sd_bus_message *answer, void *userdata, sd_bus_error *ret_error) {
        ClientCheck *c = userdata;
        int owned;

        if (bus_front && !sd_bus_message_get_error(answer) && sd_bus_message_read(answer, "b", &owned) >= 0 && !owned)
                manager_client_gone(bus_front->manager, c->name);
        return 1;
}

static void client_check_free(void *userdata) {
        ClientCheck *c = userdata;
        free(c->name);
        free(c);
}

int bus_check_client(sd_bus *bus, const char *unique_name) {
        ClientCheck *c = new0(ClientCheck, 1);
        if (!c)
                return -ENOMEM;

        c->name = strdup(unique_name);
        int r = c->name ? sd_bus_call_method_async(bus, &c->slot, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                                   "org.freedesktop.DBus", "NameHasOwner", on_client_checked, c, "s",
                                                   unique_name)
                        : -ENOMEM;
        if (r < 0) {
                client_check_free(c);
                return r;
        }

        (void) sd_bus_slot_set_destroy_callback(c->slot, client_check_free);
        r = sd_bus_slot_set_floating(c->slot, 1);
        sd_bus_slot_unref(c->slot);
        return r < 0 ? r : 0;
}


/* slot is what the call that gave r has set: its address, for arguments are read in no certain order. */
static int keep_slot(BusFront *f, int r, sd_bus_slot **slot) {
        if (r < 0)
                return r;
        assert(f->n_slots < BUS_FRONT_SLOTS_MAX);
        f->slots[f->n_slots++] = *slot;
        return 0;
}

static int add_kind(BusFront *f, size_t i) {
        sd_bus *bus = f->manager->bus;
        sd_bus_slot *slot = NULL;
        int r;

        if (!kinds[i].find)
                return keep_slot(f, sd_bus_add_object_vtable(bus, &slot, kinds[i].path, kinds[i].interface,
                                                             kinds[i].vtable, f), &slot);

        r = keep_slot(f, sd_bus_add_fallback_vtable(bus, &slot, kinds[i].path, kinds[i].interface, kinds[i].vtable,
                                                    kinds[i].find, f), &slot);
        if (r < 0)
                return r;
        return keep_slot(f, sd_bus_add_node_enumerator(bus, &slot, kinds[i].path, kinds[i].enumerate, f), &slot);
}

static int add_objects(BusFront *f) {
        sd_bus *bus = f->manager->bus;
        sd_bus_slot *slot = NULL;

        int r = keep_slot(f, sd_bus_add_object_manager(bus, &slot, CUBE_BUS_PATH), &slot);
        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(kinds); i++)
                r = add_kind(f, i);
        if (r < 0)
                return r;

        return keep_slot(f, sd_bus_add_match(bus, &slot,
                                             "type='signal',sender='org.freedesktop.DBus',"
                                             "path='/org/freedesktop/DBus',interface='org.freedesktop.DBus',"
                                             "member='NameOwnerChanged',arg2=''",
                                             match_name_lost, f), &slot);
}

/* Sandboxes that an earlier cubed bound to clients: those may have left while nobody looked. */
static int check_bound_clients(Manager *m) {
        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (m->sandboxes[i]->bound_client) {
                        int r = bus_check_client(m->bus, m->sandboxes[i]->bound_client);
                        if (r < 0)
                                return r;
                }
        return 0;
}

static int show_snapshots(const SnapshotStore *store) {
        int r = 0;

        for (size_t i = 0; r >= 0 && i < store->n_snapshots; i++)
                if (bus_snapshot_kind(store->snapshots[i]))
                        r = keep_shown(store->snapshots[i]);
        return r;
}

int bus_front_attach(Manager *m) {
        int r;

        assert(m);
        assert(!bus_front);

        bus_front = new0(BusFront, 1);
        if (!bus_front)
                return -ENOMEM;
        bus_front->manager = m;

        r = bus_senders_new(m->bus, &bus_front->senders);
        if (r >= 0)
                r = polkit_new(m->bus, m->event, &bus_front->polkit);
        if (r >= 0)
                r = show_snapshots(m->snapshots);
        if (r >= 0)
                r = add_objects(bus_front);
        if (r < 0)
                goto fail;

        m->hooks = &hooks;
        r = check_bound_clients(m);
        if (r < 0)
                goto fail;

        r = sd_bus_request_name(m->bus, CUBE_BUS_NAME, 0);
        if (r < 0)
                goto fail;
        bus_front->has_name = true;
        return 0;

fail:
        bus_front_detach(m);
        return r;
}

void bus_front_detach(Manager *m) {
        if (!bus_front)
                return;

        if (m->hooks == &hooks)
                m->hooks = NULL;
        if (bus_front->has_name)
                (void) sd_bus_release_name(m->bus, CUBE_BUS_NAME);
        while (bus_front->n_slots > 0)
                sd_bus_slot_unref(bus_front->slots[--bus_front->n_slots]);
        bus_turns_detach();
        bus_policy_detach(m);
        polkit_free(bus_front->polkit);
        bus_senders_free(bus_front->senders);
        free(bus_front->snapshots);
        free(bus_front);
        bus_front = NULL;
}
