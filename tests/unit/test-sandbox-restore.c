/* SPDX-License-Identifier: Apache-2.0 */

/* What a create that starts from a snapshot gets: which is restored, which is booted from the same disks, and what is
 * refused. */

#include "daemon/host-network.h"
#include "daemon/manager-private.h"
#include "daemon/sandbox-private.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"
#include "tests/unit/test.h"

static struct ManagerPrivate priv = { .host_mem_bytes = GIB(64) };
static Snapshot *published[2];
static SnapshotStore store = { .snapshots = published };
static Manager manager = { .priv = &priv, .snapshots = &store };
static Template template = {
        .id = (char *) "tttttttttttt",
        .name = (char *) "python",
        .tag = (char *) "latest",
        .mem_bytes = GIB(1),
        .cpus = 2,
        .disk_bytes = GIB(4),
        .file_bytes = { [TEMPLATE_FILE_DISK] = GIB(2) },
        .kernel = { .segments = { { .gpa = MIB(16), .file_bytes = 4096, .mem_bytes = 8192 } }, .n_segments = 1 },
};

static Snapshot make_snapshot(SnapshotKind kind) {
        return (Snapshot) {
                .id = "nnnnnnnnnnnn",
                .kind = kind,
                .template_id = template.id,
                .has_memory = true,
                .mem_bytes = MIB(768),
                .boot_mem_bytes = MIB(512),
                .plug_bytes = GIB(2),
                .disk_bytes = GIB(8),
                .cpu_quota_usec = USEC_PER_SEC / 2,
                .cpus = 3,
                .store = &store,
        };
}

static Sandbox *apply(const SandboxSpec *spec, const char *error_name) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        SandboxSpec s = *spec;
        Sandbox *sandbox;

        if (!manager.network)
                assert_ok(host_network_new(&manager, &manager.network));
        manager.config.runtime_directory = (char *) "/tmp";
        manager.config.max_sandboxes = CONFIG_UNLIMITED;
        if (manager.config.max_sandboxes_per_user == 0)
                manager.config.max_sandboxes_per_user = manager.config.max_sandboxes_per_tenant = CONFIG_UNLIMITED;
        manager.config.grow_mem_bytes = GIB(4);
        manager.config.default_timeout_usec = USEC_PER_SEC;
        s.template = &template;
        assert_ok(sandbox_new(&manager, "abcdefghijklmnop", &sandbox));
        int r = sandbox_apply_spec(sandbox, &s, &e);
        if (error_name) {
                assert_true(r < 0);
                assert_streq(e.name, error_name);
        } else if (r < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", e.message);
        return sandbox;
}

TEST(a_cold_template_is_booted) {
        Sandbox *s = apply(&(SandboxSpec) {}, NULL);

        assert_true(!s->restored && !s->disk_top && !s->memory_top);
        assert_eq(s->boot_mem_bytes, GIB(1));
        assert_eq(s->plug_bytes, GIB(4));
        sandbox_free(s);
}

TEST(a_warm_template_is_restored_with_its_own_defaults) {
        Snapshot n = make_snapshot(SNAPSHOT_TEMPLATE);

        n.cpus = 1;
        n.disk_bytes = GIB(4);
        published[0] = &n;
        store.n_snapshots = 1;
        Sandbox *s = apply(&(SandboxSpec) {}, NULL);
        assert_true(s->restored && s->disk_top == &n && s->memory_top == &n);
        assert_eq(n.n_users, 2);
        /* The guest has what it was warmed with; the rest is plugged. */
        assert_eq(s->mem_bytes, GIB(1));
        assert_eq(s->boot_mem_bytes, MIB(512));
        assert_eq(s->plug_bytes, GIB(2));
        assert_eq(s->priv->restored_mem_bytes, MIB(768));
        assert_eq(s->cpus, 2);
        assert_eq(s->cpu_quota_usec, 2 * USEC_PER_SEC);
        assert_eq(s->disk_bytes, GIB(4));
        assert_eq(s->priv->n_disk_layers, 1);
        assert_eq(s->priv->n_memory_layers, 1);
        sandbox_free(s);
        assert_eq(n.n_users, 0);
        store.n_snapshots = 0;
}

TEST(a_snapshot_is_restored_as_it_was) {
        Snapshot n = make_snapshot(SNAPSHOT_USER);
        Sandbox *s = apply(&(SandboxSpec) { .snapshot = &n }, NULL);

        assert_true(s->restored);
        assert_eq(s->mem_bytes, MIB(768));
        assert_eq(s->cpus, 3);
        assert_eq(s->cpu_quota_usec, USEC_PER_SEC / 2);
        assert_eq(s->disk_bytes, GIB(8));
        sandbox_free(s);

        /* A quota that was for other CPUs is none for these. */
        s = apply(&(SandboxSpec) { .snapshot = &n, .cpus = 4 }, NULL);
        assert_true(s->restored);
        assert_eq(s->cpu_quota_usec, 4 * USEC_PER_SEC);
        sandbox_free(s);
}

TEST(what_can_be_restored_with_other_memory_and_cpus) {
        static const struct {
                uint64_t mem_bytes;
                uint32_t cpus;
                bool restored;
        } cases[] = {
                { MIB(512), 0, true },              /* all that was plugged goes */
                { MIB(512) + GIB(2), 0, true },     /* all is plugged */
                { MIB(514) + GIB(2), 0, false },
                { MIB(510), 0, false },
                { 0, 16, true },
                { 0, 2, false },
                { GIB(1), 3, true },
        };
        Snapshot n = make_snapshot(SNAPSHOT_USER);

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                Sandbox *s = apply(&(SandboxSpec) { .snapshot = &n, .mem_bytes = cases[i].mem_bytes, .cpus = cases[i].cpus }, NULL);

                if (s->restored != cases[i].restored)
                        test_stop(TEST_FAILED, __LINE__, "case %zu", i);
                /* Booted or not, it stands on the same disks. */
                assert_true(s->disk_top == &n);
                assert_true(s->memory_top == (s->restored ? &n : NULL));
                if (!s->restored)
                        assert_eq(s->boot_mem_bytes, s->mem_bytes);
                sandbox_free(s);
        }
}

TEST(one_whose_balloon_holds_memory_is_restored_as_it_was) {
        Snapshot n = make_snapshot(SNAPSHOT_USER);

        n.mem_bytes = MIB(256);
        Sandbox *s = apply(&(SandboxSpec) { .snapshot = &n }, NULL);
        assert_true(s->restored);
        assert_eq(s->mem_bytes, MIB(256));
        sandbox_free(s);
}

TEST(one_without_memory_is_booted) {
        Snapshot n = make_snapshot(SNAPSHOT_USER);

        n.has_memory = false;
        Sandbox *s = apply(&(SandboxSpec) { .snapshot = &n }, NULL);
        assert_true(!s->restored && s->disk_top == &n && !s->memory_top);
        assert_eq(s->mem_bytes, MIB(768));
        sandbox_free(s);
}

TEST(what_is_refused) {
        Snapshot n = make_snapshot(SNAPSHOT_USER);

        sandbox_free(apply(&(SandboxSpec) { .snapshot = &n, .disk_bytes = GIB(4) }, BUS_ERROR_INVALID_ARGUMENT));
        sandbox_free(apply(&(SandboxSpec) { .snapshot = &n, .cpus = 17 }, BUS_ERROR_INVALID_ARGUMENT));
        n.template_id = (char *) "other";
        sandbox_free(apply(&(SandboxSpec) { .snapshot = &n }, BUS_ERROR_INVALID_ARGUMENT));
        assert_eq(n.n_users, 0);
}

/* As if it were running. */
static void count(Sandbox *list[static 8], const SandboxSpec *spec) {
        list[manager.n_sandboxes] = apply(spec, NULL);
        manager.sandboxes = list;
        manager.n_sandboxes++;
}

TEST(each_tenant_has_a_quota_of_its_own) {
        const SandboxSpec none = { .owner_uid = 1000 }, acme = { .owner_uid = 1000, .tenant = "acme" };
        const SandboxSpec evil = { .owner_uid = 1000, .tenant = "evil" }, other = { .owner_uid = 1001, .tenant = "acme" };
        Sandbox *list[8];

        manager.config.max_sandboxes_per_user = 1;
        manager.config.max_sandboxes_per_tenant = 2;
        count(list, &acme);
        assert_streq(list[0]->tenant, "acme");
        count(list, &acme);
        sandbox_free(apply(&acme, BUS_ERROR_QUOTA_EXCEEDED));
        count(list, &evil);
        count(list, &other);
        /* Nor is it that of the uid, and his not theirs. */
        count(list, &none);
        assert_streq(list[4]->tenant, "");
        sandbox_free(apply(&none, BUS_ERROR_QUOTA_EXCEEDED));
        count(list, &evil);
        sandbox_free(apply(&evil, BUS_ERROR_QUOTA_EXCEEDED));

        while (manager.n_sandboxes > 0)
                sandbox_free(list[0]);
        manager.sandboxes = NULL;
        manager.config.max_sandboxes_per_user = manager.config.max_sandboxes_per_tenant = CONFIG_UNLIMITED;
}
