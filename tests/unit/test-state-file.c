/* SPDX-License-Identifier: Apache-2.0 */

/* state.json: what is saved is what is loaded, and what is odd is refused. */

#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/capture.h"
#include "daemon/host-network.h"
#include "daemon/manager-private.h"
#include "daemon/sandbox-private.h"
#include "daemon/write-file.h"
#include "tests/unit/test.h"

static char dir[] = "/tmp/cubed-test-state-XXXXXX";
static struct ManagerPrivate priv;
static Manager manager = { .priv = &priv };

static char path[128];

static Sandbox *make(void) {
        char parent[128];
        Sandbox *s;

        if (!manager.config.runtime_directory) {
                assert_true(mkdtemp(dir));
                manager.config.runtime_directory = dir;
                assert_ok(host_network_new(&manager, &manager.network));
        }
        (void) snprintf(parent, sizeof(parent), "%s/sandbox", dir);
        (void) mkdir(parent, 0700);
        assert_ok(sandbox_new(&manager, "abcdefghijklmnop", &s));
        (void) mkdir(s->priv->dir, 0700);
        (void) snprintf(path, sizeof(path), "%s/state.json", s->priv->dir);

        s->state = SANDBOX_RUNNING;
        s->owner_uid = 1000;
        s->template_id = strdup("tttttttttttt");
        s->template_name = strdup("python:latest");
        s->hostname = strdup("host");
        s->bound_client = strdup(":1.42");
        s->untold = true;
        s->labels = new0(char *, 3);
        s->labels[0] = strdup("a=b");
        s->labels[1] = strdup("quote=\"\\u0041");
        s->mem_bytes = MIB(256);
        s->boot_mem_bytes = MIB(128);
        s->plug_bytes = GIB(1);
        s->cpus = 2;
        s->disk_bytes = GIB(4);
        s->cpu_quota_usec = 2 * USEC_PER_SEC;
        s->timeout_usec = UINT64_MAX;
        s->created_usec = 1234567890123456;
        s->vmm_pid = 4711;
        s->vmm_uid = 0x70000005;
        s->priv->vmm_start_time = 99;
        s->policy = loaded_policy_ref(host_network_deny_policy(manager.network));
        return s;
}

static void done(Sandbox *s) {
        sandbox_remove_files(s->priv->dir);
        s->vmm_uid = 0;
        sandbox_free(s);
}

TEST(a_round_trip) {
        Sandbox *s = make(), *t;

        assert_ok(sandbox_save(s));
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_eq(t->state, SANDBOX_RUNNING);
        assert_eq(t->owner_uid, 1000);
        assert_streq(t->template_id, "tttttttttttt");
        assert_streq(t->template_name, "python:latest");
        assert_streq(t->hostname, "host");
        assert_streq(t->bound_client, ":1.42");
        assert_true(t->untold);
        assert_true(!t->request_id && !t->kernel_release);
        assert_streq(t->labels[0], "a=b");
        assert_streq(t->labels[1], "quote=\"\\u0041");
        assert_true(!t->labels[2]);
        assert_eq(t->mem_bytes, MIB(256));
        assert_true(t->timeout_usec == UINT64_MAX && t->deadline_usec == UINT64_MAX);
        assert_true(t->priv->deadline_boot_usec == UINT64_MAX);
        assert_eq(t->created_usec, 1234567890123456);
        assert_eq(t->vmm_pid, 4711);
        assert_eq(t->vmm_uid, 0x70000005);
        assert_eq(t->priv->vmm_start_time, 99);
        assert_streq(t->scope_name, "cube-abcdefghijklmnop.scope");
        t->vmm_uid = 0;
        sandbox_free(t);
        done(s);
}

TEST(a_place_in_the_network) {
        static char allow[] = "example.com tcp:443", deny[] = "8.8.8.8", inbound[] = "192.0.2.0/24";
        const SandboxPolicy rules = {
                .internet = true,
                .allow = (char *[]) { allow, NULL },
                .deny = (char *[]) { deny, NULL },
                .inbound = (char *[]) { inbound, NULL },
        };
        Sandbox *s = make(), *t;

        s->slot = 300;
        strcpy(s->address4, "10.209.1.44");
        strcpy(s->address6, "fd00::12c");
        s->priv->mtu = 1400;
        s->net_limits = (NetLimits) { .bytes_out = 1000, .bytes_in = UINT64_MAX, .flows_open = UINT32_MAX };
        loaded_policy_unref(s->policy);
        assert_ok(host_network_get_policy(manager.network, &rules, &s->policy));
        assert_ok(sandbox_save(s));
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_eq(t->slot, 300);
        assert_eq(t->priv->mtu, 1400);
        assert_streq(t->address4, "10.209.1.44");
        assert_streq(t->address6, "fd00::12c");
        assert_true(memcmp(&t->net_limits, &s->net_limits, sizeof(t->net_limits)) == 0);
        assert_true(t->policy == s->policy && sandbox_policy_equal(loaded_policy_rules(t->policy), &rules));
        t->vmm_uid = 0;
        sandbox_free(t);
        done(s);
}

TEST(a_long_policy_is_read_again) {
        char *allow[4097] = {};
        Sandbox *s = make(), *t;

        for (unsigned i = 0; i < 4096; i++)
                assert_true(asprintf(&allow[i], "2001:db8:ffff:ffff:ffff:ffff:ffff:%x/128 tcp:10000-20000,%u", i, 30000 + i) > 0);
        loaded_policy_unref(s->policy);
        assert_ok(host_network_get_policy(manager.network, &(SandboxPolicy) { .allow = allow }, &s->policy));
        assert_ok(sandbox_save(s));
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_true(t->policy == s->policy);
        t->vmm_uid = 0;
        sandbox_free(t);
        done(s);
        for (unsigned i = 0; i < 4096; i++)
                free(allow[i]);
}

TEST(layers_and_a_capture_that_is_under_way) {
        Snapshot low = { .id = "llllllllllll", .kind = SNAPSHOT_USER }, high = { .id = "hhhhhhhhhhhh", .kind = SNAPSHOT_USER };
        Snapshot *list[] = { &low, &high };
        SnapshotStore store = { .snapshots = list, .n_snapshots = 2 };
        Sandbox *s = make(), *t;

        low.store = high.store = &store;
        manager.snapshots = &store;
        s->restored = true;
        s->priv->n_disk_layers = 8;
        s->priv->n_memory_layers = 7;
        sandbox_set_tops(s, &high, &low);
        memcpy(s->priv->capture_id, "cccccccccccc", sizeof("cccccccccccc"));
        assert_ok(sandbox_save(s));
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_true(t->restored && t->disk_top == &high && t->memory_top == &low && !t->priv->layers_unknown);
        assert_true(high.n_users == 2 && low.n_users == 2);
        assert_eq(t->priv->n_disk_layers, 8);
        assert_eq(t->priv->n_memory_layers, 7);
        assert_streq(t->priv->capture_id, "cccccccccccc");
        t->vmm_uid = 0;
        sandbox_free(t);
        assert_true(high.n_users == 1 && low.n_users == 1);

        /* One that is not there any more: the guest runs on, but can't be saved. */
        store.n_snapshots = 1;
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_true(!t->disk_top && t->memory_top == &low && t->priv->layers_unknown);
        t->vmm_uid = 0;
        sandbox_free(t);
        done(s);
        assert_true(high.n_users == 0 && low.n_users == 0);
        manager.snapshots = NULL;
}

TEST(a_rollback_holds_both_snapshots_until_its_vmm_was_asked) {
        Snapshot safety = { .id = "ssssssssssss", .kind = SNAPSHOT_FORK, .n_users = 1 };
        Snapshot target = { .id = "tttttttttttt", .kind = SNAPSHOT_USER };
        Snapshot *list[] = { &safety, &target };
        SnapshotStore store = { .snapshots = list, .n_snapshots = 2 };
        Sandbox *s = make(), *t;

        safety.store = target.store = &store;
        manager.snapshots = &store;
        memcpy(s->priv->capture_id, safety.id, sizeof(safety.id));
        memcpy(s->priv->rollback_id, target.id, sizeof(target.id));
        s->checkpoint_usec = UINT64_MAX;
        s->priv->checkpoint_number = 17;
        assert_ok(sandbox_save(s));
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_streq(t->priv->rollback_id, "tttttttttttt");
        assert_true(t->priv->pending[0] == &safety && t->priv->pending[1] == &target);
        assert_true(safety.n_users == 2 && target.n_users == 1);
        assert_true(t->checkpoint_usec == UINT64_MAX && t->priv->checkpoint_number == 17);
        t->vmm_uid = 0;
        sandbox_free(t);
        assert_true(safety.n_users == 1 && target.n_users == 0);
        done(s);
        manager.snapshots = NULL;
}

static void refused(Sandbox *s, const char *text) {
        Sandbox *t;

        assert_ok(write_file(path, text));
        if (sandbox_load(&manager, s->id, &t) >= 0)
                test_stop(TEST_FAILED, __LINE__, "loaded: %s", text);
}

TEST(a_builder_is_marked) {
        _cleanup_free_ char *text = NULL;
        Sandbox *s = make(), *t;

        s->builder = true;
        assert_ok(sandbox_save(s));
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_true(t->builder);
        t->vmm_uid = 0;
        sandbox_free(t);

        /* A file of a cubed that had no builders. */
        assert_ok(read_file(AT_FDCWD, path, 65536, &text, NULL));
        char *mark = strstr(text, "\"builder\":1");
        assert_true(mark);
        memmove(mark - 1, mark + strlen("\"builder\":1"), strlen(mark + strlen("\"builder\":1")) + 1);
        assert_ok(write_file(path, text));
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_true(!t->builder);
        t->vmm_uid = 0;
        sandbox_free(t);
        done(s);
}

/* Saves s with `with` in place of `what`. */
static void rewrite(const Sandbox *s, const char *what, const char *with) {
        _cleanup_free_ char *text = NULL, *other = NULL;

        assert_ok(sandbox_save(s));
        assert_ok(read_file(AT_FDCWD, path, 65536, &text, NULL));
        char *at = strstr(text, what);
        if (!at)
                test_stop(TEST_FAILED, __LINE__, "there is no %s in %s", what, text);
        assert_true(asprintf(&other, "%.*s%s%s", (int) (at - text), text, with, at + strlen(what)) > 0);
        assert_ok(write_file(path, other));
}

TEST(its_tenant) {
        Sandbox *s = make(), *t;

        tenant_name_copy(s->tenant, "acme");
        assert_ok(sandbox_save(s));
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_eq(t->owner_uid, 1000);
        assert_streq(t->tenant, "acme");
        t->vmm_uid = 0;
        sandbox_free(t);

        /* Of a cubed that knew none. */
        rewrite(s, ",\"tenant\":\"acme\"", "");
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_streq(t->tenant, "");
        t->vmm_uid = 0;
        sandbox_free(t);

        rewrite(s, "\"tenant\":\"acme\"", "\"tenant\":\"../acme\"");
        assert_eq(sandbox_load(&manager, s->id, &t), -EBADMSG);
        rewrite(s, "\"tenant\":\"acme\"", "\"tenant\":\"\"");
        assert_eq(sandbox_load(&manager, s->id, &t), -EBADMSG);
        rewrite(s, "\"tenant\":\"acme\"", "\"tenant\":5");
        assert_true(sandbox_load(&manager, s->id, &t) < 0);
        done(s);
}

/* Nor with one whose VMM is not there any more, or is not ours. */
TEST(cores_are_shared_within_a_tenant_alone) {
        struct SandboxPrivate a_priv = {}, b_priv = {};
        Sandbox a = { .owner_uid = 1000, .tenant = "acme", .priv = &a_priv, .vmm_pid = 1 };
        Sandbox b = { .owner_uid = 1000, .tenant = "acme", .priv = &b_priv, .vmm_pid = 2 };

        assert_true(sandbox_shares_core(&a, &b) && !sandbox_shares_core(&a, &a));
        tenant_name_copy(b.tenant, "evil");
        assert_true(!sandbox_shares_core(&a, &b));
        tenant_name_copy(b.tenant, NULL);
        assert_true(!sandbox_shares_core(&a, &b));
        tenant_name_copy(b.tenant, "acme");
        b.owner_uid = 1001;
        assert_true(!sandbox_shares_core(&a, &b));
        b.owner_uid = 1000;
        b_priv.exited = true;
        assert_true(!sandbox_shares_core(&a, &b));
        b_priv = (struct SandboxPrivate) { .adopted = true };
        assert_true(!sandbox_shares_core(&a, &b));
}

TEST(a_file_of_a_cubed_without_networks) {
        Sandbox *s = make(), *t;

        s->slot = 9;
        strcpy(s->address4, "10.209.0.9");
        rewrite(s, ",\"policy\":{\"default\":\"deny\"},\"network-limits\":{}", "");
        assert_eq(sandbox_load(&manager, s->id, &t), -EBADMSG);
        rewrite(s, ",\"slot\":9,\"mtu\":0", "");
        assert_ok(sandbox_load(&manager, s->id, &t));
        assert_true(t->slot == 0 && !*t->address4 && t->policy == host_network_deny_policy(manager.network));
        t->vmm_uid = 0;
        sandbox_free(t);
        done(s);
}

TEST(odd_networks_are_refused) {
        static const struct {
                const char *what, *with;
        } cases[] = {
                { "\"slot\":9", "\"slot\":65536" },
                { "\"slot\":9", "\"slot\":\"9\"" },
                { "\"mtu\":1500", "\"mtu\":65536" },
                { "\"10.209.0.9\"", "\"10.209.0\"" },
                { "\"10.209.0.9\"", "\"fd00::9\"" },
                { "{\"default\":\"deny\"}", "\"deny\"" },
                { "{\"default\":\"deny\"}", "{\"default\":\"all\"}" },
                { "\"network-limits\":{}", "\"network-limits\":{\"packets-out\":4294967296}" },
                { "\"network-limits\":{}", "\"network-limits\":[]" },
        };
        Sandbox *s = make(), *t;

        s->slot = 9;
        s->priv->mtu = 1500;
        strcpy(s->address4, "10.209.0.9");
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                rewrite(s, cases[i].what, cases[i].with);
                if (sandbox_load(&manager, s->id, &t) != -EBADMSG)
                        test_stop(TEST_FAILED, __LINE__, "case %zu: %s was not refused", i, cases[i].with);
        }
        done(s);
}

TEST(what_is_odd_is_refused) {
        Sandbox *s = make(), *t;

        assert_eq(sandbox_load(&manager, s->id, &t), -ENOENT);
        refused(s, "");
        refused(s, "{}");
        refused(s, "[]");
        refused(s, "{\"id\":\"abcdefghijklmnop\"}");
        refused(s, "{\"id\":\"abcdefghijklmnop\",\"state\":\"running\",\"template\":\"t\",\"hostname\":\"h\",\"owner-uid\":-1}");
        refused(s, "{\"id\":\"other\",\"state\":\"running\"}");
        done(s);
}

TEST(an_exit_record_is_checked) {
        Sandbox *s = make();
        VmmExitRecord record = { .magic = VMM_EXIT_RECORD_MAGIC, .version = 1, .reason = VMM_EXIT_PANIC, .status = 7 }, read_back;
        char exit_path[128];

        (void) snprintf(exit_path, sizeof(exit_path), "%s/exit", s->priv->dir);
        assert_true(!sandbox_read_exit_record(s->priv->dir, &read_back));
        memset(record.message, 'x', sizeof(record.message));
        FILE *f = fopen(exit_path, "we");
        fwrite(&record, sizeof(record), 1, f);
        fclose(f);
        assert_true(sandbox_read_exit_record(s->priv->dir, &read_back));
        assert_eq(read_back.reason, VMM_EXIT_PANIC);
        assert_eq(read_back.status, 7);
        assert_eq(strlen(read_back.message), sizeof(record.message) - 1);

        /* A reason that only cubed may find, another magic, half a record. */
        record.reason = VMM_EXIT_OOM;
        f = fopen(exit_path, "we");
        fwrite(&record, sizeof(record), 1, f);
        fclose(f);
        assert_true(!sandbox_read_exit_record(s->priv->dir, &read_back));
        record.reason = VMM_EXIT_PANIC;
        f = fopen(exit_path, "we");
        fwrite(&record, sizeof(record) - 1, 1, f);
        fclose(f);
        assert_true(!sandbox_read_exit_record(s->priv->dir, &read_back));
        done(s);
}

TEST(states_have_names) {
        for (unsigned i = 0; i < _SANDBOX_STATE_MAX; i++)
                assert_eq(sandbox_state_from_string(sandbox_state_to_string((SandboxState) i)), i);
        assert_true(sandbox_state_from_string("none") < 0 && sandbox_state_from_string(NULL) < 0);
        char parent[128];
        (void) snprintf(parent, sizeof(parent), "%s/sandbox", dir);
        (void) rmdir(parent);
        (void) rmdir(dir);
}
