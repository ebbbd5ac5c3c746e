/* SPDX-License-Identifier: Apache-2.0 */

/* Snapshots as objects, and the manager's calls about them. Layers that nobody asked for are none. */

#include <stdio.h>

#include "base/parse.h"
#include "daemon/audit.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"
#include "dbus/bus-page.h"

/* So many of those who stand on a snapshot are named. */
#define STANDING_MAX 16U

const char *bus_snapshot_kind(const Snapshot *s) {
        static const char *const names[_SNAPSHOT_KIND_MAX] = {
                [SNAPSHOT_TEMPLATE] = "template",
                [SNAPSHOT_USER] = "snapshot",
                [SNAPSHOT_CHECKPOINT] = "checkpoint",
                [SNAPSHOT_PAUSE] = "pause",
        };
        return names[s->kind];
}

const Snapshot *bus_snapshot_shown(const Snapshot *s) {
        while (s && !bus_snapshot_kind(s))
                s = s->parent;
        return s;
}

uint64_t bus_snapshot_bytes(const Snapshot *s) {
        uint64_t size = 0;

        for (size_t i = 0; i < _SNAPSHOT_FILE_MAX; i++)
                size += s->file_bytes[i];
        return size;
}

/* A template's own is seen by whom the template is. tenant: as of bus_template_visible(). */
static bool visible(const Snapshot *s, uid_t actor, const char *tenant) {
        if (!bus_snapshot_kind(s))
                return false;
        if ((actor == 0 && !tenant) || (s->kind == SNAPSHOT_TEMPLATE && s->owner_uid == 0 && !*s->tenant))
                return true;
        return s->owner_uid == actor && (!tenant || streq(s->tenant, tenant));
}

static int no_such_snapshot(sd_bus_error *error, const char *id) {
        return sd_bus_error_setf(error, BUS_ERROR_NO_SUCH_SNAPSHOT, "No snapshot '%s'; 'cubectl snapshot list' shows yours",
                                 id);
}

int bus_find_snapshot(uid_t actor, const char *tenant, const char *id, Snapshot **ret, sd_bus_error *error) {
        Snapshot *s = snapshot_store_find(bus_front->manager->snapshots, id);

        if (!s || !visible(s, actor, tenant))
                return no_such_snapshot(error, id);
        *ret = s;
        return 0;
}

int bus_method_get_snapshot(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        char path[CUBE_BUS_PATH_MAX];
        const char *id;
        uid_t actor;
        bool all;

        int r = sd_bus_message_read(m, "s", &id);
        if (r >= 0)
                r = bus_may_list_all(m, &actor, &all);
        if (r <= 0)
                return r < 0 ? r : 1;

        const Snapshot *s = snapshot_store_find(bus_front->manager->snapshots, id);
        if (!s || !visible(s, all ? 0 : actor, NULL))
                return no_such_snapshot(error, id);
        return sd_bus_reply_method_return(m, "o", bus_path_put(path, CUBE_BUS_PATH_SNAPSHOT, s->id));
}

static int append_snapshot(sd_bus_message *reply, const Snapshot *s) {
        char path[CUBE_BUS_PATH_MAX];
        return sd_bus_message_append(reply, "(" CUBE_BUS_SNAPSHOT_ITEM ")", s->id, strempty(s->name), bus_snapshot_kind(s),
                                     s->number, strempty(s->sandbox_id), (uint32_t) s->owner_uid, s->created_usec,
                                     bus_snapshot_bytes(s), bus_path_put(path, CUBE_BUS_PATH_SNAPSHOT, s->id));
}

typedef struct SnapshotFilter {
        uint32_t owner;           /* BUS_OWNER_NONE: any */
        const char *sandbox, *kind, *tenant, *name, *id;
        BusPage page;
} SnapshotFilter;

static bool fits(const Snapshot *s, const SnapshotFilter *f) {
        return (f->owner == BUS_OWNER_NONE || s->owner_uid == f->owner) &&
               (!f->sandbox || streq(strempty(s->sandbox_id), f->sandbox)) && (!f->kind || streq(bus_snapshot_kind(s), f->kind)) &&
               (!f->tenant || streq(s->tenant, f->tenant)) && (!f->name || streq(strempty(s->name), f->name)) &&
               (!f->id || streq(s->id, f->id)) && bus_page_has(&f->page, s->created_usec, s->id);
}

static int compare(const void *a, const void *b, void *page) {
        const Snapshot *x = *(const Snapshot *const *) a, *y = *(const Snapshot *const *) b;

        return bus_page_compare(page, x->created_usec, x->id, y->created_usec, y->id);
}

/* All that fit, in order. */
static int find_snapshots(const SnapshotFilter *f, uid_t actor, const Snapshot ***ret, size_t *ret_n) {
        const SnapshotStore *store = bus_front->manager->snapshots;
        const Snapshot **found = new0(const Snapshot *, store->n_snapshots + 1);
        size_t n = 0;

        if (!found)
                return -ENOMEM;
        for (size_t i = 0; i < store->n_snapshots; i++)
                if (visible(store->snapshots[i], actor, NULL) && fits(store->snapshots[i], f))
                        found[n++] = store->snapshots[i];
        qsort_r(found, n, sizeof(*found), compare, (void *) &f->page);
        *ret = found;
        *ret_n = n;
        return 0;
}

int bus_method_list_snapshots(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_bus_message_ sd_bus_message *reply = NULL;
        _cleanup_free_ const Snapshot **found = NULL;
        SnapshotFilter filter = { .owner = BUS_OWNER_NONE };
        bool all = false;
        size_t n = 0;
        uid_t actor;
        const BusOption filters[] = {
                { "owner", BUS_OPTION_U32, &filter.owner, 0 },
                { "sandbox", BUS_OPTION_STRING, &filter.sandbox, 0 },
                { "kind", BUS_OPTION_STRING, &filter.kind, 0 },
                { "tenant", BUS_OPTION_STRING, &filter.tenant, 0 },
                { "name", BUS_OPTION_STRING, &filter.name, 0 },
                { "id", BUS_OPTION_STRING, &filter.id, 0 },
                BUS_PAGE_OPTIONS(&filter.page),
        };

        int r = bus_may_list_all(m, &actor, &all);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, filters, ELEMENTSOF(filters), error);
        if (r >= 0)
                r = bus_page_check(&filter.page, UINT32_MAX, UINT32_MAX, error);
        if (r >= 0)
                r = find_snapshots(&filter, all ? 0 : actor, &found, &n);
        if (r >= 0)
                r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(" CUBE_BUS_SNAPSHOT_ITEM ")");
        for (size_t i = 0; r >= 0 && i < MIN(n, (size_t) filter.page.limit); i++)
                r = append_snapshot(reply, found[i]);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

/* Who stands on a snapshot, in words. */
typedef struct Standing {
        uid_t actor;
        char *text;
        size_t n;
        bool others;             /* of other people, who are not named */
        int error;
} Standing;

static void standing_add(Standing *l, uid_t owner, const char *kind, const char *id) {
        char *text = NULL;

        if (l->actor != 0 && l->actor != owner) {
                l->others = true;
                return;
        }
        if (l->error < 0 || l->n++ >= STANDING_MAX)
                return;
        if (asprintf(&text, "%s%s%s %s", strempty(l->text), l->text ? ", " : "", kind, id) < 0) {
                l->error = -ENOMEM;
                return;
        }
        free(l->text);
        l->text = text;
}

static bool runs_on(const Sandbox *sandbox, const Snapshot *s) {
        for (const Snapshot *p = sandbox->disk_top; p; p = p->parent)
                if (p == s)
                        return true;
        for (const Snapshot *p = sandbox->memory_top; p; p = p->memory_parent)
                if (p == s)
                        return true;
        return false;
}

static void standing_find(Standing *l, const Snapshot *s) {
        const Manager *m = bus_front->manager;

        for (size_t i = 0; i < m->n_sandboxes; i++) {
                const Sandbox *sandbox = m->sandboxes[i];
                /* One that is on disk is found as a snapshot; its own does not hold it. */
                if (sandbox->state != SANDBOX_PAUSED && sandbox->state != SANDBOX_FAILED && !streq(sandbox->id, strempty(s->sandbox_id)) &&
                    runs_on(sandbox, s))
                        standing_add(l, sandbox->owner_uid, "sandbox", sandbox->id);
        }
        for (const Snapshot *above = NULL; (above = snapshot_next_above(s, above));)
                if (above->kind == SNAPSHOT_PAUSE)
                        standing_add(l, above->owner_uid, "paused sandbox", strempty(above->sandbox_id));
                else
                        standing_add(l, above->owner_uid, strempty(bus_snapshot_kind(above)), above->id);
}

static int check_standing(const Snapshot *s, uid_t actor, sd_bus_error *error) {
        Standing l = { .actor = actor };
        char more[64] = "";

        standing_find(&l, s);
        if (l.n > STANDING_MAX)
                (void) snprintf(more, sizeof(more), " and %zu more", l.n - STANDING_MAX);
        int r = l.error;
        if (r >= 0 && (l.n > 0 || l.others))
                r = sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_IN_USE,
                                      "Snapshot %s is in use; on it stand: %s%s%s%s; remove these first", s->id,
                                      strempty(l.text), more, l.text && l.others ? ", " : "",
                                      l.others ? "something of another user" : "");
        free(l.text);
        return r;
}

/* A checkpoint is its sandbox's own: what stands on it keeps the layers, and nothing is lost but a number. */
static int check_removable(const Snapshot *s, uid_t actor, sd_bus_error *error) {
        if (s->kind == SNAPSHOT_TEMPLATE)
                return sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_IN_USE,
                                         "Snapshot %s is what template %s starts from, and goes with it: "
                                         "cubectl template rm %s",
                                         s->id, s->template_id, s->template_id);
        if (s->kind == SNAPSHOT_PAUSE)
                return sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_IN_USE,
                                         "Snapshot %s is the paused sandbox %s, and goes with it: cubectl kill %s", s->id,
                                         strempty(s->sandbox_id), strempty(s->sandbox_id));
        return s->kind == SNAPSHOT_USER ? check_standing(s, actor, error) : 0;
}

static void on_removed(Snapshot *s, int error, void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;

        if (error == -ECONNRESET || error == -ENOTCONN)
                (void) sd_bus_reply_method_errorf(call, BUS_ERROR_INTERNAL, "Snapshot %s was not removed: cube-stored ended; it is being "
                                                  "started again, try again", s->id);
        else if (error < 0)
                (void) sd_bus_reply_method_errorf(call, bus_error_of_errno(error), "Snapshot %s could not be removed: %s", s->id,
                                                  strerror(-error));
        else
                (void) sd_bus_reply_method_return(call, NULL);
}

int bus_method_remove_snapshot(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *id;
        uid_t actor;

        int r = sd_bus_message_read(m, "s", &id);
        if (r < 0)
                return r;
        r = bus_actor(m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;

        Snapshot *s = snapshot_store_find(bus_front->manager->snapshots, id);
        if (!s || !bus_snapshot_kind(s))
                return no_such_snapshot(error, id);
        const BusAccess access = { .action = POLKIT_MANAGE, .owner = s->owner_uid, .key = "snapshot", .value = s->id };
        r = bus_authorize(m, &access, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = check_removable(s, actor, error);
        if (r < 0)
                return r;

        audit_snapshot_remove(bus_front->manager->audit, s, actor);
        sd_bus_message_ref(m);
        r = snapshot_remove(s, on_removed, m);
        if (r == -EBUSY)
                r = sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_IN_USE, "Snapshot %s is in use just now; try again", s->id);
        return bus_keep_call(m, r);
}

static int property_get_kind(sd_bus *bus, const char *path, const char *interface, const char *property,
                             sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        /* One that is leaving may have lost its kind. */
        return sd_bus_message_append(reply, "s", strempty(bus_snapshot_kind(userdata)));
}

static int property_get_parent(sd_bus *bus, const char *path, const char *interface, const char *property,
                               sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Snapshot *s = userdata, *parent = bus_snapshot_shown(s->parent);
        return sd_bus_message_append(reply, "s", parent ? parent->id : "");
}

static int property_get_bool(sd_bus *bus, const char *path, const char *interface, const char *property,
                             sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "b", (int) *(bool *) userdata);
}

#define CONST SD_BUS_VTABLE_PROPERTY_CONST
#define CHANGES SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE
#define FILE_BYTES(file) (offsetof(Snapshot, file_bytes) + (file) * sizeof(uint64_t))

const sd_bus_vtable bus_snapshot_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Id", "s", bus_property_id, offsetof(Snapshot, id), CONST),
        SD_BUS_PROPERTY("Name", "s", NULL, offsetof(Snapshot, name), CONST),
        SD_BUS_PROPERTY("Kind", "s", property_get_kind, 0, CHANGES),
        SD_BUS_PROPERTY("Number", "t", NULL, offsetof(Snapshot, number), CONST),
        SD_BUS_PROPERTY("Sandbox", "s", NULL, offsetof(Snapshot, sandbox_id), CONST),
        SD_BUS_PROPERTY("Template", "s", NULL, offsetof(Snapshot, template_id), CONST),
        SD_BUS_PROPERTY("TemplateName", "s", NULL, offsetof(Snapshot, template_name), CONST),
        SD_BUS_PROPERTY("Parent", "s", property_get_parent, 0, CHANGES),
        SD_BUS_PROPERTY("Owner", "u", bus_property_uid, offsetof(Snapshot, owner_uid), CONST),
        SD_BUS_PROPERTY("Tenant", "s", bus_property_id, offsetof(Snapshot, tenant), CONST),
        SD_BUS_PROPERTY("CreatedTimestamp", "t", NULL, offsetof(Snapshot, created_usec), CONST),
        SD_BUS_PROPERTY("Memory", "t", NULL, offsetof(Snapshot, mem_bytes), CONST),
        SD_BUS_PROPERTY("CPUs", "u", NULL, offsetof(Snapshot, cpus), CONST),
        SD_BUS_PROPERTY("Disk", "t", NULL, offsetof(Snapshot, disk_bytes), CONST),
        SD_BUS_PROPERTY("HasMemory", "b", property_get_bool, offsetof(Snapshot, has_memory), CONST),
        SD_BUS_PROPERTY("MemoryBytes", "t", NULL, FILE_BYTES(SNAPSHOT_FILE_MEMORY), CHANGES),
        SD_BUS_PROPERTY("DiskBytes", "t", NULL, FILE_BYTES(SNAPSHOT_FILE_DISK), CHANGES),
        SD_BUS_PROPERTY("StateBytes", "t", NULL, FILE_BYTES(SNAPSHOT_FILE_STATE), CHANGES),
        SD_BUS_PROPERTY("Durable", "b", property_get_bool, offsetof(Snapshot, durable), CHANGES),
        SD_BUS_VTABLE_END
};
