/* SPDX-License-Identifier: Apache-2.0 */

/* What copies of a sandbox have of its network: as it was when they were made, not when they were asked for; and whose they
 * are. The instant and the creates are the test's. */

#include "daemon/host-network.h"
#include "daemon/sandbox-private.h"
#include "daemon/template.h"
#include "tests/unit/test.h"

static struct {
        SnapshotTaken taken;
        void *userdata;
        LoadedPolicy *policy;
        NetLimits limits;
        char tenant[TENANT_NAME_MAX];
        unsigned n_creates, n_done;
} seen;

int __wrap_sandbox_snapshot(Sandbox *s, SnapshotKind kind, const char *name, SnapshotTaken done, void *userdata, sd_bus_error *error);
int __wrap_sandbox_create(Manager *m, const SandboxSpec *spec, SandboxDone done, void *userdata, Sandbox **ret, sd_bus_error *error);

int __wrap_sandbox_snapshot(Sandbox *s, SnapshotKind kind, const char *name, SnapshotTaken done, void *userdata, sd_bus_error *error) {
        seen.taken = done;
        seen.userdata = userdata;
        return 0;
}

/* Each comes to nothing, so that the fork ends. */
int __wrap_sandbox_create(Manager *m, const SandboxSpec *spec, SandboxDone done, void *userdata, Sandbox **ret, sd_bus_error *error) {
        seen.policy = spec->policy;
        seen.limits = spec->net_limits;
        tenant_name_copy(seen.tenant, spec->tenant);
        seen.n_creates++;
        return sd_bus_error_set_errno(error, EIO);
}

static void on_forked(Sandbox *s, const sd_bus_error *error, const ForkResult *results, size_t n, void *userdata) {
        seen.n_done++;
}

static Manager manager;
static SnapshotStore store;
static Template template;
static Snapshot snapshot;
static Sandbox parent;
static struct SandboxPrivate priv;

/* One that may talk to the internet. */
static void make(void) {
        memset(&seen, 0, sizeof(seen));
        manager = (Manager) { .snapshots = &store };
        assert_ok(host_network_new(&manager, &manager.network));
        template = (Template) { .n_users = 1 };
        snapshot = (Snapshot) { .n_users = 1 };
        priv = (struct SandboxPrivate) { .template = &template, .vmm = (VmmClient *) &priv };
        parent = (Sandbox) {
                .manager = &manager, .priv = &priv, .state = SANDBOX_RUNNING, .id = "abcdefghijklmnop",
                .policy = host_network_internet_policy(manager.network), .net_limits = { .flows_open = 100, .packets_in = 7 },
        };
}

static void done(void) {
        assert_eq(seen.n_done, 1);
        assert_true(template.n_users == 1 && snapshot.n_users == 1);
        manager.network = host_network_free(manager.network);
}

TEST(copies_have_the_network_of_the_instant) {
        make();
        assert_ok(sandbox_fork(&parent, 2, &(SandboxSpec) { .net_limits = { .packets_in = 9 } }, on_forked, NULL, NULL));
        /* Asked for before the fork, in force before the instant. */
        parent.policy = host_network_deny_policy(manager.network);
        parent.net_limits.flows_open = 50;
        seen.taken(&parent, NULL, &snapshot, seen.userdata);
        assert_eq(seen.n_creates, 2);
        assert_true(seen.policy == host_network_deny_policy(manager.network));
        assert_true(seen.limits.flows_open == 50 && seen.limits.packets_in == 9);
        done();
}

TEST(or_one_of_their_own) {
        make();
        parent.policy = host_network_deny_policy(manager.network);
        const SandboxSpec spec = { .policy = host_network_internet_policy(manager.network) };
        assert_ok(sandbox_fork(&parent, 1, &spec, on_forked, NULL, NULL));
        seen.taken(&parent, NULL, &snapshot, seen.userdata);
        assert_true(seen.n_creates == 1 && seen.policy == host_network_internet_policy(manager.network));
        done();
}

TEST(copies_are_the_same_tenants_also_when_the_first_one_is_gone) {
        char tenant[TENANT_NAME_MAX] = "acme";

        make();
        assert_ok(sandbox_fork(&parent, 1, &(SandboxSpec) { .tenant = tenant }, on_forked, NULL, NULL));
        memset(tenant, 'x', sizeof(tenant) - 1);
        seen.taken(&parent, NULL, &snapshot, seen.userdata);
        assert_eq(seen.n_creates, 1);
        assert_streq(seen.tenant, "acme");
        done();
}

TEST(an_instant_that_does_not_come_leaves_nothing) {
        make();
        assert_ok(sandbox_fork(&parent, 1, &(SandboxSpec) {}, on_forked, NULL, NULL));
        const sd_bus_error e = SD_BUS_ERROR_MAKE_CONST("org.example", "no");
        seen.taken(&parent, &e, NULL, seen.userdata);
        assert_eq(seen.n_creates, 0);
        done();
}
