/* SPDX-License-Identifier: Apache-2.0 */

/* How much of what is saved is whose, and when it is enough. */

#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"
#include "tests/unit/test.h"

static Snapshot *kept[8];
static SnapshotStore store = { .snapshots = kept };
static struct SandboxPrivate private;
static Sandbox *sandboxes[2];
static Manager manager = { .snapshots = &store, .sandboxes = sandboxes };

static Sandbox make_sandbox(uid_t owner, const char *tenant) {
        Sandbox s = { .manager = &manager, .owner_uid = owner, .priv = &private };

        tenant_name_copy(s.tenant, tenant);
        return s;
}

static void keep(Snapshot *n, SnapshotKind kind, uid_t owner, const char *tenant, uint64_t bytes) {
        *n = (Snapshot) { .kind = kind, .owner_uid = owner, .file_bytes = { [SNAPSHOT_FILE_DISK] = bytes / 2, [SNAPSHOT_FILE_MEMORY] = bytes - bytes / 2 } };
        tenant_name_copy(n->tenant, tenant);
        kept[store.n_snapshots++] = n;
}

static void set_up(uint32_t n, uint64_t bytes) {
        store.n_snapshots = manager.n_sandboxes = 0;
        private = (struct SandboxPrivate) {};
        manager.config.max_snapshots_per_user = manager.config.max_snapshots_per_tenant = n;
        manager.config.max_snapshot_bytes_per_user = manager.config.max_snapshot_bytes_per_tenant = bytes;
}

static void assert_refused(const Sandbox *s, const char *because) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        assert_true(sandbox_check_snapshot_quota(s, &e) < 0);
        assert_streq(e.name, BUS_ERROR_QUOTA_EXCEEDED);
        assert_true(strstr(e.message, because));
}

TEST(each_has_a_number_of_his_own) {
        const Sandbox acme = make_sandbox(1000, "acme"), evil = make_sandbox(1000, "evil"), user = make_sandbox(1000, NULL);
        Snapshot n[4];

        set_up(2, UINT64_MAX);
        for (size_t i = 0; i < 2; i++)
                keep(&n[i], SNAPSHOT_USER, 1000, "acme", 100);
        assert_refused(&acme, "Tenant acme has 2 snapshots already, as many as MaxSnapshotsPerTenant= allows");
        assert_ok(sandbox_check_snapshot_quota(&evil, NULL));
        assert_ok(sandbox_check_snapshot_quota(&user, NULL));
        for (size_t i = 2; i < 4; i++)
                keep(&n[i], SNAPSHOT_USER, 1000, NULL, 100);
        assert_refused(&user, "Uid 1000 has 2 snapshots already, as many as MaxSnapshotsPerUser= allows");
        assert_ok(sandbox_check_snapshot_quota(&evil, NULL));
        manager.config.max_snapshots_per_tenant = CONFIG_UNLIMITED;
        assert_ok(sandbox_check_snapshot_quota(&acme, NULL));
}

TEST(those_under_way_count_and_those_that_nobody_asked_for_do_not) {
        Sandbox acme = make_sandbox(1000, "acme");
        Snapshot n[3];

        set_up(2, UINT64_MAX);
        keep(&n[0], SNAPSHOT_USER, 1000, "acme", 100);
        keep(&n[1], SNAPSHOT_PAUSE, 1000, "acme", 100);
        keep(&n[2], SNAPSHOT_TEMPLATE, 1000, "acme", 100);
        sandboxes[manager.n_sandboxes++] = &acme;
        assert_ok(sandbox_check_snapshot_quota(&acme, NULL));
        private.n_snapshots_asked = 1;
        assert_refused(&acme, "has 2 snapshots already");
}

TEST(all_that_is_saved_takes_disk) {
        const Sandbox acme = make_sandbox(1000, "acme"), root = make_sandbox(0, NULL), of_root = make_sandbox(0, "acme");
        Snapshot n[4];

        set_up(CONFIG_UNLIMITED, MIB(10));
        keep(&n[0], SNAPSHOT_LAYER, 1000, "acme", MIB(4));
        keep(&n[1], SNAPSHOT_PAUSE, 1000, "acme", MIB(5));
        keep(&n[2], SNAPSHOT_TEMPLATE, 1000, "acme", GIB(1));
        assert_ok(sandbox_check_snapshot_quota(&acme, NULL));
        keep(&n[3], SNAPSHOT_CHECKPOINT, 1000, "acme", MIB(1));
        assert_refused(&acme, "takes 10M, and MaxSnapshotBytesPerTenant= allows 10M");
        /* Root may fill his own disk. */
        manager.config.max_snapshot_bytes_per_user = manager.config.max_snapshot_bytes_per_tenant = 0;
        assert_ok(sandbox_check_snapshot_quota(&root, NULL));
        assert_refused(&of_root, "Tenant acme takes 0");
}
