/* SPDX-License-Identifier: Apache-2.0 */

/* Freeing what nothing refers to. A child measures it; then templates go one after the other, as if each were
 * removed by hand, so that one which somebody began to use meanwhile stays; then leftovers, and what the store can
 * see itself to be nobody's. One at a time, owned by the manager. */

#include <stdio.h>
#include <stdlib.h>

#include "base/parse.h"
#include "daemon/json-strict.h"
#include "daemon/manager-private.h"
#include "daemon/tool.h"
#include "dbus/bus-errors.h"

/* As cube-image takes them. */
#define TEMPLATES_MAX 256U
#define LEFTOVERS_ONCE 60U
#define USAGE_STORE_FD 4

struct Garbage {
        Manager *manager;
        uid_t actor;
        bool dry_run;
        GarbageDone done;
        void *userdata;
        Tool *tool;
        GarbageItem *items;
        size_t n_items;
        size_t next;             /* of the items, while templates go */
        bool more;               /* there was too much for one time */
        bool unsure;             /* templates stay */
        char *failure;           /* the last one */
};

Garbage *garbage_free(Garbage *g) {
        if (!g)
                return NULL;
        if (g->manager->priv->garbage == g)
                g->manager->priv->garbage = NULL;
        tool_free(g->tool);
        for (size_t i = 0; i < g->n_items; i++)
                free(g->items[i].name);
        free(g->items);
        free(g->failure);
        free(g);
        return NULL;
}
DEFINE_CLEANUP(Garbage *, garbage_free);

/* Snapshots that could not be loaded may stand on anything. Those that a crash of the host damaged are gone. */
static bool knows_all_snapshots(const Manager *m) {
        return m->snapshots->n_warnings <= m->snapshots->n_lost;
}

static bool is_garbage(const Manager *m, const Template *t, uid_t actor) {
        return !t->named && !t->aliases && t->n_users == 0 && (actor == 0 || t->owner_uid == actor) &&
                !streq(t->id, strempty(m->config.default_template)) &&
                !template_store_is_busy(m->templates, STORE_JOB_NAME, t->id) && !manager_next_snapshot_on(m, t, NULL);
}

/* A directory that a child or a build of ours is at. */
static bool is_at_work(const Manager *m, const char *entry) {
        const char *id = startswith(entry, STORE_REMOVE_PREFIX);

        if (id)
                return template_store_is_busy(m->templates, STORE_JOB_REMOVE, id);
        id = startswith(entry, STORE_BUILD_PREFIX);
        return !id || manager_is_building(m, id);
}

static int add_item(Garbage *g, const char *kind, const char *name, uint64_t bytes) {
        GarbageItem *l = reallocarray(g->items, g->n_items + 1, sizeof(*l));

        if (!l)
                return -ENOMEM;
        g->items = l;
        l[g->n_items] = (GarbageItem) { kind, strdup(name), bytes };
        return l[g->n_items].name ? (int) g->n_items++ : -ENOMEM;
}

static void drop_item(Garbage *g, size_t i) {
        free(g->items[i].name);
        memmove(g->items + i, g->items + i + 1, (g->n_items - i - 1) * sizeof(GarbageItem));
        g->n_items--;
}

/* r < 0: it could not be found out at all. */
static void finish(Garbage *g, int r) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *note = NULL;
        _cleanup_(garbage_freep) Garbage *owned = g;

        if (r < 0)
                (void) sd_bus_error_setf(&e, BUS_ERROR_INTERNAL, "What nothing refers to could not be found out: %s",
                                         g->failure ? g->failure : strerror(-r));
        if (asprintf(&note, "%s%s%s%s",
                     g->unsure ? "Templates stay: there are snapshots that could not be loaded, and what they stand on is not "
                                 "known; the journal of cubed says which. " : "",
                     g->more ? "There is more; run it again. " : "", g->failure ? "Not all could be removed: " : "",
                     strempty(g->failure)) < 0)
                note = NULL;
        g->done(g->manager, r < 0 ? &e : NULL, g->items, g->n_items, strempty(note), g->userdata);
}

static void set_failure(Garbage *g, const char *text) {
        char *copy = strdup(strempty(text));

        free(g->failure);
        g->failure = copy;
}

static void on_swept(TemplateStore *s, const char *id, int r, const char *message, void *userdata) {
        Garbage *g = userdata;

        if (r < 0)
                set_failure(g, message);
        finish(g, 0);
}

static void sweep(Garbage *g) {
        const char *const argv[] = { g->manager->templates->tools.cube_image, "sweep", NULL };

        int r = template_store_run(g->manager->event, g->manager->templates, STORE_JOB_CLEAN, NULL, argv, on_swept, g);
        if (r < 0)
                on_swept(g->manager->templates, NULL, r, strerror(-r), g);
}

static void on_leftovers_gone(TemplateStore *s, const char *id, int r, const char *message, void *userdata) {
        Garbage *g = userdata;

        if (r < 0)
                set_failure(g, message);
        sweep(g);
}

static void remove_leftovers(Garbage *g) {
        const char *argv[LEFTOVERS_ONCE + 3] = { g->manager->templates->tools.cube_image, "remove" };
        size_t n = 2;

        for (size_t i = 0; i < g->n_items; i++) {
                if (!streq(g->items[i].kind, "leftover"))
                        continue;
                if (n == LEFTOVERS_ONCE + 2) {
                        g->more = true;
                        drop_item(g, i--);
                } else
                        argv[n++] = g->items[i].name;
        }
        int r = n > 2 ? template_store_run(g->manager->event, g->manager->templates, STORE_JOB_CLEAN, NULL, argv,
                                           on_leftovers_gone, g) : 0;
        if (r < 0 || n == 2)
                on_leftovers_gone(g->manager->templates, NULL, r, r < 0 ? strerror(-r) : NULL, g);
}

static void remove_templates(Garbage *g);

/* What several templates have, in the report and in what people read. */
static const struct {
        const char *key, *kind;
} shared_kinds[] = { { "kernels", "kernel" }, { "initramfs", "initramfs" }, { "roots", "root" }, { "layers", "layer" } };

static bool is_shared(const char *kind) {
        for (size_t i = 0; i < ELEMENTSOF(shared_kinds); i++)
                if (streq(shared_kinds[i].kind, kind))
                        return true;
        return false;
}

/* What is shared may be what it has, so that none of that is said to be freed. */
static void keep_template(Garbage *g) {
        drop_item(g, g->next);
        for (size_t i = 0; i < g->n_items;)
                if (is_shared(g->items[i].kind))
                        drop_item(g, i);
                else
                        i++;
}

static void on_template_gone(Manager *m, const sd_bus_error *error, void *userdata) {
        Garbage *g = userdata;

        if (sd_bus_error_is_set(error)) {
                set_failure(g, error->message);
                keep_template(g);
        } else
                g->next++;
        remove_templates(g);
}

/* The next one that still is of no use to anybody. */
static void remove_templates(Garbage *g) {
        Manager *m = g->manager;

        while (g->next < g->n_items && streq(g->items[g->next].kind, "template")) {
                _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
                Template *t = template_store_find_id(m->templates, g->items[g->next].name);

                if (t && is_garbage(m, t, g->actor)) {
                        if (manager_remove_template(m, t, g->actor, on_template_gone, g, &e) >= 0)
                                return;
                        set_failure(g, e.message);
                }
                keep_template(g);
        }
        if (g->actor == 0)
                remove_leftovers(g);
        else
                finish(g, 0);
}

/* The guest that its sandboxes start from goes with it. */
static uint64_t snapshot_bytes(const Manager *m, const char *template_id) {
        const Snapshot *s = snapshot_store_find_template(m->snapshots, template_id);
        uint64_t bytes = 0;

        for (size_t i = 0; s && i < _SNAPSHOT_FILE_MAX; i++)
                bytes += s->file_bytes[i];
        return bytes;
}

static int add_items(Garbage *g, json_object *report, const char *key, const char *kind) {
        json_object *o;
        int r = json_get(report, key, json_type_object, &o);

        if (r < 0)
                return r;
        json_object_object_foreach(o, name, value) {
                bool template = streq(kind, "template");
                uint64_t bytes;

                (void) value;
                r = json_get_u64(o, name, 0, INT64_MAX, &bytes);
                if (r >= 0 && (!streq(kind, "leftover") || !is_at_work(g->manager, name)))
                        r = add_item(g, kind, name, bytes + (template ? snapshot_bytes(g->manager, name) : 0));
                if (r < 0)
                        return r;
        }
        return 0;
}

static int read_report(Garbage *g) {
        static const char *const keys[] = {
                "templates", "kernels", "initramfs", "roots", "layers", "leftovers", "names", "more", NULL,
        };
        _cleanup_json_ json_object *o = NULL;
        json_object *more;
        size_t size;

        const char *text = tool_report(g->tool, &size);
        int r = json_parse_strict(text, size, &o);
        if (r >= 0)
                r = json_check_keys(o, keys);
        if (r >= 0)
                r = json_get(o, "more", json_type_boolean, &more);
        if (r < 0)
                return r;
        g->more |= json_object_get_boolean(more);
        r = add_items(g, o, "templates", "template");
        /* What is nobody's is root's. */
        for (size_t i = 0; i < ELEMENTSOF(shared_kinds) && r >= 0 && g->actor == 0; i++)
                r = add_items(g, o, shared_kinds[i].key, shared_kinds[i].kind);
        if (r >= 0 && g->actor == 0)
                r = add_items(g, o, "leftovers", "leftover");
        return r >= 0 && g->actor == 0 ? add_items(g, o, "names", "name") : r;
}

static void on_measured(Tool *tool, int r, const char *message, void *userdata) {
        Garbage *g = userdata;

        if (r < 0)
                set_failure(g, message);
        else
                r = read_report(g);
        g->tool = tool_free(g->tool);
        if (r < 0 || g->dry_run)
                finish(g, r);
        else
                remove_templates(g);
}

static int compare_age(const void *a, const void *b) {
        const Template *x = *(const Template *const *) a, *y = *(const Template *const *) b;

        return x->created_usec != y->created_usec ? (x->created_usec > y->created_usec ? 1 : -1) : strcmp(x->id, y->id);
}

/* Oldest first. */
static size_t find_templates(const Garbage *g, const Template **l) {
        const TemplateStore *s = g->manager->templates;
        size_t n = 0;

        for (size_t i = 0; i < s->n_templates; i++)
                if (is_garbage(g->manager, s->templates[i], g->actor))
                        l[n++] = s->templates[i];
        qsort(l, n, sizeof(*l), compare_age);
        return n;
}

static int start(Garbage *g) {
        const char *argv[TEMPLATES_MAX + 3] = { g->manager->templates->tools.cube_image, "usage" };
        const TemplateStore *s = g->manager->templates;
        ToolSpec spec = TOOL_SPEC_INIT;

        _cleanup_free_ const Template **l = new0(const Template *, s->n_templates + 1);
        if (!l)
                return -ENOMEM;
        g->unsure = !knows_all_snapshots(g->manager);
        size_t n = g->unsure ? 0 : find_templates(g, l);
        g->more = n > TEMPLATES_MAX;
        for (size_t i = 0; i < MIN(n, TEMPLATES_MAX); i++)
                argv[2 + i] = l[i]->id;
        spec.argv = argv;
        spec.report = true;
        spec.fds[USAGE_STORE_FD] = s->root_fd;
        return tool_start(g->manager->event, &spec, on_measured, NULL, g, &g->tool);
}

int manager_collect_garbage(Manager *m, uid_t actor, bool dry_run, GarbageDone done, void *userdata, sd_bus_error *error) {
        if (m->priv->garbage)
                return sd_bus_error_set(error, BUS_ERROR_BUSY, "Garbage is being collected already; try again when that has ended");
        _cleanup_(garbage_freep) Garbage *g = new0(Garbage, 1);
        if (!g)
                return sd_bus_error_set_errno(error, ENOMEM);
        g->manager = m;
        g->actor = actor;
        g->dry_run = dry_run;
        g->done = done;
        g->userdata = userdata;
        int r = start(g);
        if (r < 0)
                return sd_bus_error_set_errno(error, r);
        m->priv->garbage = TAKE_PTR(g);
        return 0;
}
