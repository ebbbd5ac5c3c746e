/* SPDX-License-Identifier: Apache-2.0 */

/* A sandbox is opened, closed, and found again by another cube-netd, whose part the test plays; the map that a claim writes
 * to is a real one. Needs root. */

#include <linux/bpf.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd-util.h"
#include "daemon/sandbox-private.h"
#include "tests/unit/fake-netd.h"
#include "tests/unit/test.h"

#define SLOT 5U

static struct ManagerPrivate priv;
static Manager manager;
static FakeNetd netd = { .manager = &manager, .fd = -EBADF };
static Sandbox *sandbox, *sandboxes[1];
static unsigned n_opened;
static char opened_error[256];

static int bpf(int cmd, union bpf_attr *attr) {
        return (int) syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

static void set_entry(NetEntry e) {
        uint32_t slot = SLOT;
        union bpf_attr attr = { .map_fd = (uint32_t) netd.entries, .key = (uintptr_t) &slot, .value = (uintptr_t) &e };

        assert_eq(bpf(BPF_MAP_UPDATE_ELEM, &attr), 0);
}

static NetEntry get_entry(void) {
        NetEntry e = {};

        assert_ok(net_client_get_entry(manager.net, SLOT, &e));
        return e;
}

static uint32_t answer(NetOp op) {
        FakeRequest q = fake_netd_take(&netd, op);
        return fake_netd_answer(&netd, &q);
}

static void set_up(void) {
        fake_netd_start(&netd);
        (void) answer(NET_OP_SETUP);
}

static void load_builtins(void) {
        (void) answer(NET_OP_POLICY_LOAD);
        (void) answer(NET_OP_POLICY_LOAD);
}

/* One that may talk to the world, with a slot, closed. */
static void make(void) {
        union bpf_attr attr = { .map_type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = sizeof(NetEntry), .max_entries = 8 };

        netd.entries = bpf(BPF_MAP_CREATE, &attr);
        if (netd.entries < 0)
                test_skip("no BPF map can be made here");
        netd.next_policy = 1;
        manager = (Manager) { .priv = &priv, .sandboxes = sandboxes, .config = { .runtime_directory = (char *) "/tmp", .network4 = (char *) "auto" } };
        assert_ok(sd_event_new(&manager.event));
        assert_ok(net_client_new(manager.event, &manager.net));
        assert_ok(host_network_new(&manager, &manager.network));
        host_network_start(manager.network);

        assert_ok(sandbox_new(&manager, "abcdefghijklmnop", &sandbox));
        sandbox->state = SANDBOX_RUNNING;
        sandbox->owner_uid = 1000;
        sandbox->slot = SLOT;
        sandbox->policy = loaded_policy_ref(host_network_internet_policy(manager.network));
        set_entry((NetEntry) { .policy = 9, .generation = 7, .owner = UINT32_MAX });
        n_opened = 0;
        opened_error[0] = 0;
}

static void done(void) {
        sandboxes[0] = NULL;
        manager.n_sandboxes = 0;
        sandbox_free(sandbox);
        fake_netd_stop(&netd);
        manager.network = host_network_free(manager.network);
        manager.net = net_client_free(manager.net);
        manager.event = sd_event_unref(manager.event);
        netd.entries = safe_close(netd.entries);
}

static void on_opened(Sandbox *s, const sd_bus_error *error) {
        n_opened++;
        (void) snprintf(opened_error, sizeof(opened_error), "%s", error ? error->message : "");
}

static void assert_open(uint32_t generation) {
        NetEntry e = get_entry();
        uint32_t policy, flags;

        assert_true(loaded_policy_get_entry(sandbox->policy, &policy, &flags));
        assert_true(e.policy == policy && e.flags == flags && e.owner == 1000);
        assert_eq(e.generation, generation);
        assert_true(sandbox->priv->net_open);
}

TEST(opening_is_one_write_and_no_request) {
        make();
        set_up();
        load_builtins();
        assert_eq(sandbox_network_open(sandbox, on_opened), 1);
        assert_open(8);
        /* Once. */
        assert_eq(sandbox_network_open(sandbox, on_opened), 1);
        assert_open(8);
        assert_true(n_opened == 0 && fake_netd_idle(&netd));
        done();
}

TEST(who_has_no_slot_has_nothing_to_open) {
        make();
        set_up();
        sandbox->slot = 0;
        assert_eq(sandbox_network_open(sandbox, on_opened), 1);
        assert_true(!sandbox_network_close(sandbox, NULL) && !sandbox->priv->net_open);
        assert_eq(get_entry().generation, 7);
        done();
}

TEST(limits_of_its_own_are_there_before) {
        make();
        set_up();
        load_builtins();
        sandbox->net_limits.flows_open = 10;
        assert_eq(sandbox_network_open(sandbox, on_opened), 0);
        FakeRequest q = fake_netd_take(&netd, NET_OP_LIMITS_SET);
        assert_eq(q.slot, SLOT);
        assert_eq(get_entry().generation, 7);
        (void) fake_netd_answer(&netd, &q);
        assert_true(n_opened == 1 && !*opened_error);
        assert_open(8);
        done();
}

TEST(a_policy_that_is_not_loaded_yet_is_waited_for) {
        make();
        set_up();
        assert_eq(sandbox_network_open(sandbox, on_opened), 0);
        assert_true(n_opened == 0 && get_entry().generation == 7);
        load_builtins();
        assert_eq(n_opened, 1);
        assert_open(8);
        done();
}

TEST(a_policy_that_is_refused_opens_nothing) {
        static char rule[] = "8.8.8.8 tcp:70000";

        make();
        loaded_policy_unref(sandbox->policy);
        assert_ok(host_network_get_policy(manager.network, &(SandboxPolicy) { .allow = (char *[]) { rule, NULL } }, &sandbox->policy));
        set_up();
        FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_LOAD);
        fake_netd_fail(&netd, &q, -EINVAL, "Port 70000 is none");
        load_builtins();
        assert_eq(sandbox_network_open(sandbox, on_opened), 0);
        q = fake_netd_take(&netd, NET_OP_POLICY_LOAD);
        fake_netd_fail(&netd, &q, -EINVAL, "Port 70000 is none");
        assert_eq(n_opened, 1);
        assert_true(strstr(opened_error, "Port 70000 is none"));
        assert_true(!sandbox->priv->net_open && get_entry().generation == 7);
        done();
}

TEST(opening_outlives_cube_netd) {
        make();
        set_up();
        load_builtins();
        sandbox->net_limits.bytes_in = 1;
        assert_eq(sandbox_network_open(sandbox, on_opened), 0);
        (void) fake_netd_take(&netd, NET_OP_LIMITS_SET);
        fake_netd_stop(&netd);
        for (unsigned i = 0; i < 20; i++)
                (void) sd_event_run(manager.event, 0);
        assert_eq(n_opened, 0);
        set_up();
        load_builtins();
        (void) answer(NET_OP_LIMITS_SET);
        assert_true(n_opened == 1 && !*opened_error);
        assert_open(8);
        done();
}

static void open_it(void) {
        make();
        sandboxes[0] = sandbox;
        manager.n_sandboxes = 1;
        set_up();
        load_builtins();
        assert_eq(sandbox_network_open(sandbox, NULL), 1);
}

TEST(closing_is_waited_for) {
        open_it();
        assert_true(sandbox_network_close(sandbox, NULL));
        assert_true(!sandbox->priv->net_open);
        FakeRequest q = fake_netd_take(&netd, NET_OP_QUIESCE);
        assert_eq(q.slot, SLOT);
        assert_true(sandbox_network_close(sandbox, NULL));
        (void) fake_netd_answer(&netd, &q);
        assert_true(!sandbox_network_close(sandbox, NULL) && fake_netd_idle(&netd));
        done();
}

TEST(closing_is_asked_for_a_second_time_and_no_more) {
        open_it();
        sandbox->state = SANDBOX_STOPPING;
        assert_true(sandbox_network_close(sandbox, NULL));
        (void) fake_netd_take(&netd, NET_OP_QUIESCE);
        set_up();
        load_builtins();
        (void) fake_netd_take(&netd, NET_OP_QUIESCE);
        assert_true(sandbox_network_close(sandbox, NULL));
        set_up();
        load_builtins();
        assert_true(!sandbox_network_close(sandbox, NULL) && fake_netd_idle(&netd));
        done();
}

static void assert_closed(void) {
        NetEntry e = get_entry();

        assert_true(e.policy == NET_POLICY_DENY && e.flags == NET_ENTRY_CLOSED && e.owner == UINT32_MAX);
        assert_eq(e.generation, 9);
}

TEST(nothing_passes_while_cube_netd_is_away) {
        open_it();
        fake_netd_stop(&netd);
        assert_true(sandbox_network_close(sandbox, NULL));
        assert_closed();
        done();
}

TEST(nothing_passes_when_cube_netd_goes_before_it_has_closed) {
        open_it();
        assert_true(sandbox_network_close(sandbox, NULL));
        (void) fake_netd_take(&netd, NET_OP_QUIESCE);
        fake_netd_stop(&netd);
        assert_true(fake_netd_idle(&netd));
        assert_closed();
        done();
}

static unsigned n_closed;

static void on_closed(Sandbox *s) {
        assert_true(!sandbox_network_close(s, NULL));
        n_closed++;
}

TEST(who_closes_one_that_goes_on_is_told) {
        open_it();
        n_closed = 0;
        assert_true(sandbox_network_close(sandbox, on_closed));
        FakeRequest q = fake_netd_take(&netd, NET_OP_QUIESCE);
        assert_eq(n_closed, 0);
        (void) fake_netd_answer(&netd, &q);
        assert_true(fake_netd_idle(&netd));
        assert_eq(n_closed, 1);
        /* What is closed needs no waiting. */
        assert_true(!sandbox_network_close(sandbox, on_closed) && n_closed == 1);
        done();
}

TEST(another_cube_netd_is_told_the_policy_again) {
        NetEntry before, now;

        open_it();
        before = get_entry();
        set_up();
        load_builtins();
        FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_SET);
        assert_eq(q.slot, SLOT);
        /* What is in force stays so until it has made its tables. */
        now = get_entry();
        assert_true(memcmp(&before, &now, sizeof(now)) == 0 && sandbox->priv->net_open);
        done();
}

TEST(what_was_closed_meanwhile_is_opened_again) {
        open_it();
        set_entry((NetEntry) { .policy = NET_POLICY_DENY, .generation = 20, .flags = NET_ENTRY_CLOSED, .owner = UINT32_MAX });
        set_up();
        load_builtins();
        assert_open(21);
        assert_true(fake_netd_idle(&netd));
        done();
}

TEST(what_could_not_be_opened_is_opened_by_the_next_one) {
        make();
        sandboxes[0] = sandbox;
        manager.n_sandboxes = 1;
        /* As after a rollback. */
        fake_netd_start(&netd);
        FakeRequest q = fake_netd_take(&netd, NET_OP_SETUP);
        fake_netd_fail(&netd, &q, -EADDRINUSE, "10.209.0.0/16 is taken");
        assert_ok(sandbox_network_open(sandbox, on_opened));
        assert_true(n_opened == 0 || *opened_error);
        assert_true(!sandbox->priv->net_open);
        set_up();
        load_builtins();
        assert_open(8);
        done();
}

TEST(but_not_while_it_is_rolled_back) {
        open_it();
        memcpy(sandbox->priv->rollback_id, "rrrrrrrrrrrr", sizeof("rrrrrrrrrrrr"));
        set_entry((NetEntry) { .policy = NET_POLICY_DENY, .generation = 20, .flags = NET_ENTRY_CLOSED, .owner = UINT32_MAX });
        set_up();
        load_builtins();
        assert_true(!sandbox->priv->net_open && get_entry().generation == 20 && fake_netd_idle(&netd));
        sandbox->priv->rollback_id[0] = 0;
        assert_eq(sandbox_network_open(sandbox, NULL), 1);
        assert_open(21);
        done();
}

/* Another policy. */

static unsigned n_set;
static char set_error[128];

static void on_set(Sandbox *s, const sd_bus_error *error, void *userdata) {
        n_set++;
        (void) snprintf(set_error, sizeof(set_error), "%s", error ? error->name : "");
}

/* Runs, as far as others can see. */
static int open_running(void) {
        static const VmmEvents events;
        int ends[2];

        open_it();
        assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends));
        assert_ok(vmm_client_new(manager.event, ends[0], &events, sandbox, &sandbox->priv->vmm));
        n_set = 0;
        return ends[1];
}

static LoadedPolicy *set(const char *rule) {
        char copy[64];
        LoadedPolicy *p;

        (void) snprintf(copy, sizeof(copy), "%s", rule);
        assert_ok(host_network_get_policy(manager.network, &(SandboxPolicy) { .allow = (char *[]) { copy, NULL } }, &p));
        assert_ok(sandbox_set_policy(sandbox, p, on_set, NULL, NULL));
        return p;
}

TEST(a_new_policy_is_the_sandbox_s_once_it_is_in_force) {
        _cleanup_close_ int vmm = open_running();
        LoadedPolicy *p = set("192.0.2.1");

        FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_SET);
        assert_true(q.slot == SLOT && q.n_texts == 1);
        assert_streq(q.texts[0], "192.0.2.1");
        assert_true(n_set == 0 && sandbox->policy == host_network_internet_policy(manager.network));
        (void) fake_netd_answer(&netd, &q);
        assert_true(n_set == 1 && !*set_error && sandbox->policy == p);
        loaded_policy_unref(p);
        done();
}

/* The one before was refused when it was opened, as behind a rollback. */
TEST(one_that_stayed_closed_is_opened_with_a_new_policy) {
        _cleanup_close_ int vmm = open_running();

        sandbox->priv->net_open = false;
        set_entry((NetEntry) { .policy = NET_POLICY_DENY, .generation = 20, .flags = NET_ENTRY_CLOSED, .owner = UINT32_MAX });
        LoadedPolicy *p = set("192.0.2.1");
        (void) answer(NET_OP_POLICY_LOAD);
        assert_true(n_set == 1 && !*set_error && sandbox->policy == p);
        assert_open(21);
        loaded_policy_unref(p);
        done();
}

TEST(one_that_is_refused_is_not) {
        _cleanup_close_ int vmm = open_running();
        LoadedPolicy *p = set("192.0.2.1 tcp:70000");

        FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_SET);
        fake_netd_fail(&netd, &q, -EINVAL, "Port 70000 is none");
        assert_eq(n_set, 1);
        assert_streq(set_error, "org.cubed.Cube1.Error.InvalidArgument");
        assert_true(sandbox->policy == host_network_internet_policy(manager.network));
        loaded_policy_unref(p);
        done();
}

TEST(it_comes_behind_the_present_one_when_cube_netd_comes_back) {
        _cleanup_close_ int vmm = open_running();

        fake_netd_start(&netd);
        LoadedPolicy *p = set("192.0.2.1");
        (void) answer(NET_OP_SETUP);
        for (unsigned i = 0; i < 3; i++)
                (void) answer(NET_OP_POLICY_LOAD);
        FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_SET);
        assert_eq(q.n_texts, 0);
        (void) fake_netd_answer(&netd, &q);
        q = fake_netd_take(&netd, NET_OP_POLICY_SET);
        assert_streq(q.texts[0], "192.0.2.1");
        (void) fake_netd_answer(&netd, &q);
        assert_true(n_set == 1 && sandbox->policy == p);
        loaded_policy_unref(p);
        done();
}

TEST(who_set_one_is_told_of_the_end) {
        _cleanup_close_ int vmm = open_running();
        LoadedPolicy *p = set("192.0.2.1");

        FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_SET);
        loaded_policy_unref(p);
        sandbox_free(TAKE_PTR(sandbox));
        assert_true(n_set == 1 && *set_error);
        (void) fake_netd_answer(&netd, &q);
        assert_eq(n_set, 1);
        done();
}

TEST(slots_of_paused_ones_are_kept_before_any_is_given_out) {
        make();
        sandboxes[0] = sandbox;
        manager.n_sandboxes = 1;
        manager.config.free_slots = 1;
        sandbox->state = SANDBOX_PAUSED;
        sandbox->priv->kept = true;
        set_up();
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_KEEP);
        assert_eq(q.slot, SLOT);
        (void) fake_netd_answer(&netd, &q);
        load_builtins();
        (void) answer(NET_OP_SLOT_NEW);
        sandbox->priv->kept = false;
        done();
}

static void on_taken(Sandbox *s) {
}

static void take_links(void) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(64);
        uint32_t slot = SLOT;
        union bpf_attr attr = { .map_fd = (uint32_t) netd.entries, .key = (uintptr_t) &slot };

        assert_eq(bpf(BPF_MAP_DELETE_ELEM, &attr), 0);
        tlv_put_u32(&w, NET_TAG_SLOT, SLOT);
        fake_netd_tell(&netd, NET_EVENT_LINKS_GONE, &w);
}

/* It runs, and is closed, rolled back and paused under the number of its place. */
TEST(nobody_else_gets_the_place_of_one_that_runs_without_its_links) {
        make();
        sandboxes[manager.n_sandboxes++] = sandbox;
        set_up();
        load_builtins();
        assert_eq(sandbox_network_open(sandbox, NULL), 1);
        take_links();
        assert_eq(answer(NET_OP_SLOT_KEEP), 0);

        /* Nor from another cube-netd. */
        set_up();
        FakeRequest q;
        for (unsigned i = 0; i < 2; i++)
                (void) answer(NET_OP_POLICY_LOAD);
        q = fake_netd_take(&netd, NET_OP_SLOT_KEEP);
        assert_eq(q.slot, SLOT);
        (void) fake_netd_answer(&netd, &q);

        sandbox_drop_network(sandbox);
        q = fake_netd_take(&netd, NET_OP_SLOT_FREE);
        assert_eq(q.slot, SLOT);
        (void) fake_netd_answer(&netd, &q);
        done();
}

TEST(one_that_runs_without_its_links_and_is_paused_keeps_its_place) {
        make();
        sandboxes[manager.n_sandboxes++] = sandbox;
        set_up();
        load_builtins();
        assert_eq(sandbox_network_open(sandbox, NULL), 1);
        take_links();
        (void) answer(NET_OP_SLOT_KEEP);
        sandbox->priv->kept = true;
        sandbox_drop_network(sandbox);
        assert_true(fake_netd_idle(&netd));
        sandbox->priv->kept = false;
        done();
}

TEST(one_that_got_another_place_keeps_that) {
        make();
        sandbox->state = SANDBOX_RESUMING;
        sandbox->priv->kept = true;
        netd.next_slot = SLOT + 1;
        set_up();
        load_builtins();
        assert_ok(sandbox_take_slot(sandbox, on_taken, NULL));
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
        assert_eq(q.slot, SLOT);
        fake_netd_fail(&netd, &q, -EEXIST, "Slot 5 is in use");
        assert_eq(answer(NET_OP_SLOT_NEW), SLOT + 1);
        assert_eq(sandbox->slot, SLOT + 1);
        q = fake_netd_take(&netd, NET_OP_SLOT_FREE);
        assert_eq(q.slot, SLOT);
        q = fake_netd_take(&netd, NET_OP_SLOT_KEEP);
        assert_eq(q.slot, SLOT + 1);
        sandbox->priv->kept = false;
        done();
}

TEST(a_vmm_that_was_found_is_closed_where_it_is) {
        Sandbox *left;

        make();
        set_up();
        load_builtins();
        assert_ok(sandbox_new(&manager, "bbbbbbbbbbbbbbbb", &left));
        left->slot = SLOT + 1;
        (void) snprintf(left->address4, sizeof(left->address4), "10.209.0.6");
        sandbox_adopt_network(sandbox, left);
        sandbox_free(left);
        assert_streq(sandbox->address4, "10.209.0.6");
        assert_true(sandbox_network_close(sandbox, NULL));
        /* Somebody else has the place that it was paused in. */
        FakeRequest q = fake_netd_take(&netd, NET_OP_QUIESCE);
        assert_eq(q.slot, SLOT + 1);
        done();
}

TEST(a_claim_has_the_guest_s_own_addresses) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);
        unsigned n_networks = 0, n_servers = 0;
        uint32_t mtu = 0;
        Tlv t;

        make();
        strcpy(sandbox->address4, "10.209.0.5");
        strcpy(sandbox->address6, "fd00::5");
        sandbox->priv->mtu = 1400;
        sandbox_put_network(sandbox, &w);
        assert_ok(tlv_writer_finish(&w));
        TlvReader r = TLV_READER_INIT(w.data, w.size);
        while (tlv_next(&r, &t) > 0) {
                static const uint8_t inner[2][2][4] = { { { 169, 254, 77, 2 }, { 169, 254, 77, 1 } }, { { 0xfd, 0xcb, 0xed, 0 }, { 0xfd, 0xcb, 0xed, 0 } } };
                AgentNetwork n;

                if (t.tag == AGENT_TAG_NETWORK) {
                        assert_ok(tlv_get_struct(&t, &n, sizeof(n)));
                        assert_true(n_networks < 2);
                        assert_true(n.family == (n_networks ? 6 : 4) && n.prefix == (n_networks ? 64 : 30));
                        assert_true(memcmp(n.address, inner[n_networks][0], 4) == 0 && memcmp(n.gateway, inner[n_networks][1], 4) == 0);
                        assert_true(n_networks == 0 || (n.address[15] == 2 && n.gateway[15] == 1));
                        n_networks++;
                } else if (t.tag == AGENT_TAG_MTU)
                        assert_ok(tlv_get_u32(&t, &mtu));
                else if (t.tag == AGENT_TAG_NAMESERVER) {
                        assert_true(t.len == strlen("169.254.77.1") && memcmp(t.data, "169.254.77.1", t.len) == 0);
                        n_servers++;
                } else
                        test_stop(TEST_FAILED, __LINE__, "record %u", t.tag);
        }
        assert_true(n_networks == 2 && n_servers == 1 && mtu == 1400);
        done();
}
