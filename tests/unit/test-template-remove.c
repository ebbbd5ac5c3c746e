/* SPDX-License-Identifier: Apache-2.0 */

/* A template that something stands on stays, and the error says what that is. */

#include "daemon/manager-private.h"
#include "dbus/bus-errors.h"
#include "test.h"

static char id[] = "ttttttttttttt", other[] = "uuuuuuuuuuuuu";
static Template template = { .id = id, .name = (char *) "python", .tag = (char *) "latest" };
static Sandbox sandboxes[40];
static Snapshot snapshots[40];
static Sandbox *sandbox_list[40];
static Snapshot *snapshot_list[40];
static SnapshotStore snapshot_store = { .snapshots = snapshot_list };
static TemplateStore template_store;
static Manager manager = { .sandboxes = sandbox_list, .snapshots = &snapshot_store, .templates = &template_store };

static void add_sandbox(uid_t owner, char *of) {
        Sandbox *s = &sandboxes[manager.n_sandboxes];

        *s = (Sandbox) { .owner_uid = owner, .template_id = of };
        (void) snprintf(s->id, sizeof(s->id), "sandbox%05zu", manager.n_sandboxes);
        sandbox_list[manager.n_sandboxes++] = s;
        template.n_users += of == id;
}

static void add_snapshot(SnapshotKind kind, uid_t owner, char *of) {
        Snapshot *s = &snapshots[snapshot_store.n_snapshots];

        *s = (Snapshot) { .kind = kind, .owner_uid = owner, .template_id = of };
        (void) snprintf(s->id, sizeof(s->id), "saved%05zu", snapshot_store.n_snapshots);
        snapshot_list[snapshot_store.n_snapshots++] = s;
}

static void setup(void) {
        manager.n_sandboxes = snapshot_store.n_snapshots = 0;
        template.n_users = 0;
}

/* What it says, as far as actor may know. */
static const char *refused(uid_t actor) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        static char text[2048];

        assert_true(manager_remove_template(&manager, &template, actor, NULL, NULL, &e) < 0);
        assert_true(sd_bus_error_has_name(&e, BUS_ERROR_TEMPLATE_IN_USE));
        (void) snprintf(text, sizeof(text), "%s", e.message);
        return text;
}

TEST(sandboxes_and_snapshots_are_named) {
        setup();
        add_sandbox(0, id);
        add_sandbox(1000, id);
        add_sandbox(0, other);
        add_snapshot(SNAPSHOT_USER, 1000, id);
        add_snapshot(SNAPSHOT_USER, 0, other);
        /* its own, and the one that a paused sandbox lies in */
        add_snapshot(SNAPSHOT_TEMPLATE, 0, id);
        add_snapshot(SNAPSHOT_PAUSE, 1000, id);
        assert_streq(refused(0), "Template python:latest (ttttttttttttt) is in use by 2 sandboxes (sandbox00000, sandbox00001) "
                                 "and 1 snapshot (saved00000); remove them first");
        assert_streq(refused(1000), "Template python:latest (ttttttttttttt) is in use by 2 sandboxes (sandbox00001, ...) "
                                    "and 1 snapshot (saved00000); remove them first");
        assert_streq(refused(1001), "Template python:latest (ttttttttttttt) is in use by 2 sandboxes and 1 snapshot; remove them first");
}

TEST(a_snapshot_alone_keeps_it) {
        setup();
        add_snapshot(SNAPSHOT_CHECKPOINT, 0, id);
        assert_streq(refused(0), "Template python:latest (ttttttttttttt) is in use by 1 snapshot (saved00000); remove them first");
}

TEST(layers_of_what_goes_are_waited_for) {
        setup();
        add_snapshot(SNAPSHOT_LAYER, 0, id);
        assert_true(strstr(refused(0), "just being removed; try again"));
}

TEST(a_long_list_ends_with_dots) {
        setup();
        for (unsigned i = 0; i < ELEMENTSOF(sandboxes); i++)
                add_sandbox(0, id);
        const char *text = refused(0);
        assert_true(strstr(text, "by 40 sandboxes (sandbox00000, ") && strstr(text, ", ...); remove them first"));
}
