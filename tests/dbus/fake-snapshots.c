/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <time.h>

#include "dbus/bus-errors.h"
#include "tests/dbus/fake-core.h"
#include "tests/dbus/fake-snapshots.h"

static unsigned long long n_made;

static void sandbox_told(Sandbox *s, const char *a, const char *b) {
        char *l[] = { (char *) a, (char *) b, NULL };
        s->manager->hooks->sandbox_changed(s->manager, s, l);
}

static void set_state(Sandbox *s, SandboxState state) {
        char *l[] = { (char *) "State", (char *) "StateChangedTimestamp", (char *) "Parked", NULL };

        s->state = state;
        s->manager->hooks->sandbox_changed(s->manager, s, l);
}

Snapshot *snapshot_store_find(SnapshotStore *store, const char *id) {
        for (size_t i = 0; i < store->n_snapshots; i++)
                if (streq(store->snapshots[i]->id, id))
                        return store->snapshots[i];
        return NULL;
}

Snapshot *snapshot_free(Snapshot *s) {
        if (!s)
                return NULL;
        free(s->name);
        free(s->sandbox_id);
        free(s->template_id);
        free(s->template_name);
        free(s);
        return NULL;
}

static Snapshot *make(Sandbox *s, SnapshotKind kind, const char *name) {
        SnapshotStore *store = s->manager->snapshots;
        Snapshot *n = new0(Snapshot, 1);

        *n = (Snapshot) {
                .kind = kind, .name = name ? strdup(name) : NULL, .owner_uid = s->owner_uid,
                .created_usec = (uint64_t) time(NULL) * USEC_PER_SEC, .sandbox_id = strdup(s->id),
                .template_id = strdup(s->template_id), .template_name = strdup(s->template_name), .durable = true,
                .has_memory = true, .parent = s->disk_top, .memory_parent = s->memory_top, .mem_bytes = s->mem_bytes,
                .disk_bytes = s->disk_bytes, .cpus = s->cpus, .file_bytes = { 1000, 2000, 3000 }, .store = store,
        };
        tenant_name_copy(n->tenant, s->tenant);
        snprintf(n->id, sizeof(n->id), "s%011llu", ++n_made);
        store->snapshots = realloc(store->snapshots, (store->n_snapshots + 1) * sizeof(Snapshot *));
        store->snapshots[store->n_snapshots++] = n;
        s->manager->hooks->snapshot_added(s->manager, n);
        s->disk_top = s->memory_top = n;
        sandbox_told(s, "BaseSnapshot", NULL);
        return n;
}

static bool stands_on(const Snapshot *above, const Snapshot *s) {
        for (const Snapshot *p = above->parent; p; p = p->parent)
                if (p == s)
                        return true;
        return false;
}

Snapshot *snapshot_next_above(const Snapshot *s, const Snapshot *after) {
        const SnapshotStore *store = s->store;
        size_t i = 0;

        while (after && store->snapshots[i++] != after)
                ;
        for (; i < store->n_snapshots; i++) {
                Snapshot *t = store->snapshots[i];
                bool own = streq(t->sandbox_id, s->sandbox_id) && t->kind != SNAPSHOT_USER;
                if (t->kind != SNAPSHOT_LAYER && t->kind != SNAPSHOT_FORK && !own && stands_on(t, s))
                        return t;
        }
        return NULL;
}

static bool runs_on(const Sandbox *sandbox, const Snapshot *s) {
        for (const Snapshot *p = sandbox->disk_top; p; p = p->parent)
                if (p == s)
                        return true;
        return false;
}

static void drop(Snapshot *s, Manager *m) {
        SnapshotStore *store = s->store;

        m->hooks->snapshot_removed(m, s);
        for (size_t i = 0; i < store->n_snapshots; i++)
                if (store->snapshots[i] == s) {
                        store->snapshots[i] = store->snapshots[--store->n_snapshots];
                        break;
                }
        snapshot_free(s);
}

/* Nobody asks for it any more, but layers may be needed. */
static void let_go(Snapshot *s, Manager *m) {
        bool needed = false;

        for (size_t i = 0; i < m->n_sandboxes; i++)
                needed = needed || runs_on(m->sandboxes[i], s);
        for (size_t i = 0; i < m->snapshots->n_snapshots; i++)
                needed = needed || m->snapshots->snapshots[i]->parent == s;
        if (!needed) {
                drop(s, m);
                return;
        }
        s->kind = SNAPSHOT_LAYER;
        m->hooks->snapshot_changed(m, s);
}

int snapshot_remove(Snapshot *s, SnapshotDone done, void *userdata) {
        Manager *m = s->store->userdata;

        if (s->kind == SNAPSHOT_USER && snapshot_next_above(s, NULL))
                return -EBUSY;
        let_go(s, m);
        done(NULL, 0, userdata);
        return 0;
}

void fake_snapshots_stand(Sandbox *s, Snapshot *snapshot) {
        s->disk_top = s->memory_top = snapshot;
        s->restored = snapshot && snapshot->has_memory;
}

void fake_snapshots_gone(Sandbox *s) {
        SnapshotStore *store = s->manager->snapshots;

        for (size_t i = store->n_snapshots; i-- > 0;) {
                Snapshot *n = store->snapshots[i];
                if (streq(n->sandbox_id, s->id) && n->kind != SNAPSHOT_USER && n->kind != SNAPSHOT_LAYER)
                        let_go(n, s->manager);
        }
}

void fake_snapshots_checkpoint(Sandbox *s) {
        const SnapshotStore *store = s->manager->snapshots;
        uint64_t number = 1;

        if (s->checkpoint_usec != UINT64_MAX)
                return;
        for (size_t i = 0; i < store->n_snapshots; i++)
                number += streq(store->snapshots[i]->sandbox_id, s->id) && store->snapshots[i]->number > 0;
        make(s, SNAPSHOT_CHECKPOINT, NULL)->number = number;
}

void fake_snapshots_free(SnapshotStore *store) {
        for (size_t i = 0; i < store->n_snapshots; i++)
                snapshot_free(store->snapshots[i]);
        free(store->snapshots);
        free(store);
}

int sandbox_snapshot(Sandbox *s, SnapshotKind kind, const char *name, SnapshotTaken done, void *userdata,
                     sd_bus_error *error) {
        static const sd_bus_error full = SD_BUS_ERROR_MAKE_CONST(BUS_ERROR_NO_RESOURCES, "The disk is full");

        int r = sandbox_check_running(s, error);
        if (r < 0)
                return r;
        if (name && streq(name, "broken"))
                done(s, &full, NULL, userdata);
        else
                done(s, NULL, make(s, kind, name), userdata);
        return 0;
}

int sandbox_pause(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error) {
        if (s->state != SANDBOX_PAUSED && s->state != SANDBOX_RUNNING)
                return sandbox_check_running(s, error);
        if (s->state == SANDBOX_RUNNING) {
                make(s, SNAPSHOT_PAUSE, NULL)->has_memory = memory;
                set_state(s, SANDBOX_PAUSED);
        }
        done(s, NULL, userdata);
        return 0;
}

int sandbox_resume(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error) {
        if (s->state != SANDBOX_PAUSED && s->state != SANDBOX_RUNNING)
                return sandbox_check_running(s, error);
        if (s->state == SANDBOX_PAUSED) {
                bool boots = !memory || !s->disk_top->has_memory;
                s->restored = !boots;
                set_state(s, boots ? SANDBOX_RESUMING : SANDBOX_RUNNING);
                let_go(s->disk_top, s->manager);
                sandbox_told(s, "Start", "BaseSnapshot");
                if (boots)
                        return fake_guest_reboot(s, done, userdata);
        }
        done(s, NULL, userdata);
        return 0;
}

int sandbox_rollback(Sandbox *s, Snapshot *snapshot, SandboxDone done, void *userdata, sd_bus_error *error) {
        int r = sandbox_check_running(s, error);
        if (r < 0)
                return r;
        s->disk_top = s->memory_top = snapshot;
        sandbox_told(s, "BaseSnapshot", NULL);
        done(s, NULL, userdata);
        return 0;
}

typedef struct Fork {
        Sandbox *parent;
        ForkResult *results;
        size_t n, n_done;
        ForkDone done;
        void *userdata;
} Fork;

static void fork_step(Fork *f) {
        if (++f->n_done < f->n)
                return;
        f->done(f->parent, NULL, f->results, f->n, f->userdata);
        for (size_t i = 0; i < f->n; i++)
                sd_bus_error_free(&f->results[i].error);
        free(f->results);
        free(f);
}

static void on_forked(Sandbox *s, const sd_bus_error *error, void *userdata) {
        fork_step(userdata);
}

int sandbox_fork(Sandbox *s, size_t n, const SandboxSpec *spec, ForkDone done, void *userdata, sd_bus_error *error) {
        SandboxSpec each = *spec;
        int r = sandbox_check_running(s, error);
        if (r < 0)
                return r;
        each.snapshot = make(s, SNAPSHOT_FORK, NULL);
        if (!each.policy)
                each.policy = s->policy;
        if (each.net_limits.bytes_out == 0)
                each.net_limits.bytes_out = s->net_limits.bytes_out;
        for (size_t i = 0; i < s->manager->templates->n_templates; i++)
                if (streq(s->manager->templates->templates[i]->id, s->template_id))
                        each.template = s->manager->templates->templates[i];

        Fork *f = new0(Fork, 1);
        *f = (Fork) { .parent = s, .results = new0(ForkResult, n), .n = n, .done = done, .userdata = userdata };
        for (size_t i = 0; i < n; i++) {
                ForkResult *x = &f->results[i];
                if (i >= FAKE_FORKS_MAX)
                        (void) sd_bus_error_set(&x->error, BUS_ERROR_QUOTA_EXCEEDED, "There are enough");
                if (i >= FAKE_FORKS_MAX ||
                    sandbox_create(s->manager, &each, on_forked, f, &x->sandbox, &x->error) < 0)
                        fork_step(f);
        }
        return 0;
}
