/* SPDX-License-Identifier: Apache-2.0 */

/* The pool of slots and the policies that are loaded, against a cube-netd whose part the test plays. */

#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd-util.h"
#include "daemon/audit.h"
#include "tests/unit/fake-netd.h"
#include "tests/unit/test.h"

/* Answers, in the order in which they came. */
typedef struct Answers {
        unsigned n;
        int error[8];
        uint32_t slot[8];
        char message[200], address4[16];
        LoadedPolicy *policy;
        uint32_t id, flags;
} Answers;

static Manager manager;
static FakeNetd netd = { .manager = &manager, .fd = -EBADF };

static void on_slot(int error, const char *message, NetworkSlot *slot, void *userdata) {
        Answers *a = userdata;

        assert_true(a->n < ELEMENTSOF(a->error));
        a->error[a->n] = error;
        a->slot[a->n++] = slot->slot;
        (void) snprintf(a->message, sizeof(a->message), "%s", message);
        memcpy(a->address4, slot->address4, sizeof(a->address4));
        assert_true(error < 0 || (slot->netns_fd >= 0 && slot->tap_fd >= 0));
}

static void on_policy(int error, const char *message, LoadedPolicy *p, void *userdata) {
        Answers *a = userdata;

        a->error[a->n++] = error;
        (void) snprintf(a->message, sizeof(a->message), "%s", message);
        if (error >= 0) {
                a->policy = loaded_policy_ref(p);
                assert_true(loaded_policy_get_entry(p, &a->id, &a->flags));
        }
}

static void make(uint32_t free_slots) {
        netd.next_slot = 2;
        netd.next_policy = 1;
        manager = (Manager) { .config = { .free_slots = free_slots, .network_mark = 1, .network4 = (char *) "auto" } };
        assert_ok(sd_event_new(&manager.event));
        assert_ok(net_client_new(manager.event, &manager.net));
        assert_ok(host_network_new(&manager, &manager.network));
        host_network_start(manager.network);
        fake_netd_start(&netd);
}

static void done(void) {
        fake_netd_stop(&netd);
        manager.network = host_network_free(manager.network);
        manager.net = net_client_free(manager.net);
        manager.event = sd_event_unref(manager.event);
}

static uint32_t answer(NetOp op) {
        FakeRequest q = fake_netd_take(&netd, op);
        return fake_netd_answer(&netd, &q);
}

/* deny and internet, which are always there. */
static void set_up(void) {
        (void) answer(NET_OP_SETUP);
        assert_eq(answer(NET_OP_POLICY_LOAD), netd.next_policy - 1);
        (void) answer(NET_OP_POLICY_LOAD);
}

static uint32_t n_free(void) {
        HostNetworkInfo i;

        host_network_get_info(manager.network, &i);
        return i.n_free_slots;
}

/* A slot that nobody wants is given back to be closed. */
static void see_returned(void) {
        FakeRequest q = fake_netd_take(&netd, NET_OP_PING);
        assert_eq(q.n_fds, 2);
        (void) fake_netd_answer(&netd, &q);
}

TEST(the_pool_is_filled_one_by_one) {
        make(3);
        set_up();
        for (unsigned i = 0; i < 3; i++) {
                FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
                assert_true(fake_netd_idle(&netd));
                (void) fake_netd_answer(&netd, &q);
                assert_eq(n_free(), i + 1);
        }
        assert_true(fake_netd_idle(&netd));
        done();
}

TEST(a_free_slot_is_there_at_once_and_replaced_later) {
        Answers a = {};

        make(2);
        set_up();
        (void) answer(NET_OP_SLOT_NEW);
        (void) answer(NET_OP_SLOT_NEW);
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &a));
        assert_true(a.n == 1 && a.error[0] == 0 && a.slot[0] == 3);
        assert_streq(a.address4, "10.209.0.3");
        /* It did not take the descriptors. */
        see_returned();
        assert_eq(answer(NET_OP_SLOT_NEW), 4);
        assert_eq(n_free(), 2);
        assert_true(fake_netd_idle(&netd));
        done();
}

TEST(when_none_is_free_who_came_first_is_first) {
        Answers a = {}, b = {}, c = {};

        make(1);
        set_up();
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &a));
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &b));
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &c));
        assert_true(a.n == 0);
        host_network_cancel(manager.network, &b);
        assert_eq(answer(NET_OP_SLOT_NEW), 2);
        assert_true(a.n == 1 && a.slot[0] == 2 && c.n == 0);
        see_returned();
        assert_eq(answer(NET_OP_SLOT_NEW), 3);
        assert_true(c.n == 1 && c.slot[0] == 3 && b.n == 0 && n_free() == 0);
        see_returned();
        assert_eq(answer(NET_OP_SLOT_NEW), 4);
        assert_true(n_free() == 1 && fake_netd_idle(&netd));
        done();
}

TEST(one_slot_in_particular) {
        Answers a = {}, b = {}, c = {};

        make(0);
        set_up();
        assert_ok(host_network_take_slot(manager.network, 77, on_slot, &a));
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
        assert_eq(q.slot, 77);
        assert_eq(fake_netd_answer(&netd, &q), 77);
        assert_true(a.n == 1 && a.slot[0] == 77);
        see_returned();

        assert_ok(host_network_take_slot(manager.network, 78, on_slot, &b));
        q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
        fake_netd_fail(&netd, &q, -EEXIST, "Slot 78 is in use");
        assert_true(b.n == 1 && b.error[0] == -EEXIST);
        assert_streq(b.message, "Slot 78 is in use");

        /* What is on its way to nobody is closed. */
        assert_ok(host_network_take_slot(manager.network, 79, on_slot, &c));
        host_network_cancel(manager.network, &c);
        (void) answer(NET_OP_SLOT_NEW);
        see_returned();
        assert_true(c.n == 0 && fake_netd_idle(&netd));
        done();
}

TEST(a_pool_of_none_makes_them_on_demand) {
        Answers a = {};

        make(0);
        set_up();
        assert_true(fake_netd_idle(&netd));
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &a));
        (void) answer(NET_OP_SLOT_NEW);
        assert_eq(a.n, 1);
        see_returned();
        assert_true(fake_netd_idle(&netd));
        done();
}

TEST(no_address_left_is_told) {
        Answers a = {}, b = {};

        make(1);
        set_up();
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &a));
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &b));
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
        fake_netd_fail(&netd, &q, -ENOSPC, "All addresses are taken");
        assert_true(a.n == 1 && a.error[0] == -ENOSPC && b.n == 1 && b.error[0] == -ENOSPC);
        assert_streq(b.message, "All addresses are taken");
        /* It is tried again, but not at once. */
        assert_true(fake_netd_idle(&netd));
        (void) fake_netd_take(&netd, NET_OP_SLOT_NEW);
        done();
}

TEST(a_network_that_can_not_be_set_up_is_an_error_until_it_can) {
        Answers a = {}, b = {}, c = {};
        HostNetworkInfo i;

        make(1);
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &a));
        assert_ok(host_network_load_policy(manager.network, &(SandboxPolicy) { .internet = true }, on_policy, &b));
        assert_true(!host_network_failure(manager.network));
        FakeRequest q = fake_netd_take(&netd, NET_OP_SETUP);
        fake_netd_fail(&netd, &q, -EADDRINUSE, "10.0.0.0/8 overlaps with a route by eth0");
        assert_true(a.n == 1 && a.error[0] == -ENETDOWN && b.n == 1 && b.error[0] == -ENETDOWN);
        assert_true(strstr(a.message, "10.0.0.0/8 overlaps with a route by eth0") && strstr(a.message, "Network4="));
        host_network_get_info(manager.network, &i);
        assert_streq(i.error, a.message);
        /* At once, now that it is known. */
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &c));
        assert_true(c.n == 1 && c.error[0] == -ENETDOWN);

        /* Tried again. */
        set_up();
        assert_true(!host_network_failure(manager.network));
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &c));
        (void) answer(NET_OP_SLOT_NEW);
        assert_true(c.n == 2 && c.error[1] == 0);
        done();
}

TEST(requests_outlive_cube_netd) {
        Answers a = {}, own = {}, policy = {};
        static char rule[] = "example.com";

        make(1);
        set_up();
        (void) answer(NET_OP_SLOT_NEW);
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &a));
        see_returned();
        assert_ok(host_network_take_slot(manager.network, 0, on_slot, &a));
        assert_ok(host_network_take_slot(manager.network, 9, on_slot, &own));
        assert_ok(host_network_load_policy(manager.network, &(SandboxPolicy) { .allow = (char *[]) { rule, NULL } }, on_policy, &policy));
        (void) fake_netd_take(&netd, NET_OP_SLOT_NEW);
        (void) fake_netd_take(&netd, NET_OP_SLOT_NEW);
        (void) fake_netd_take(&netd, NET_OP_POLICY_LOAD);
        fake_netd_stop(&netd);
        for (unsigned i = 0; i < 20; i++)
                (void) sd_event_run(manager.event, 0);
        assert_true(a.n == 1 && own.n == 0 && policy.n == 0);

        fake_netd_start(&netd);
        (void) answer(NET_OP_SETUP);
        for (unsigned i = 0; i < 3; i++)
                (void) answer(NET_OP_POLICY_LOAD);
        assert_true(policy.n == 1 && policy.error[0] == 0);
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
        assert_eq(q.slot, 9);
        (void) fake_netd_answer(&netd, &q);
        assert_true(own.n == 1 && own.slot[0] == 9);
        (void) answer(NET_OP_SLOT_NEW);
        assert_true(a.n == 2 && a.error[1] == 0);
        loaded_policy_unref(policy.policy);
        done();
}

static void on_ready(int error, const char *message, void *userdata) {
        Answers *a = userdata;

        a->error[a->n++] = error;
}

TEST(waiting_for_cube_netd_takes_as_long_as_it_is_away) {
        Answers a = {}, b = {};

        make(0);
        set_up();
        assert_ok(host_network_wait(manager.network, on_ready, &a));
        assert_true(a.n == 1 && a.error[0] == 0);
        fake_netd_stop(&netd);
        /* Whoever finds out first: from here on nobody is told that it is there. */
        assert_eq(net_client_quiesce(manager.net, 2, NULL, NULL), -ENOTCONN);
        assert_ok(host_network_wait(manager.network, on_ready, &a));
        assert_ok(host_network_wait(manager.network, on_ready, &b));
        host_network_cancel(manager.network, &b);
        for (unsigned i = 0; i < 20; i++)
                (void) sd_event_run(manager.event, 0);
        assert_eq(a.n, 1);
        fake_netd_start(&netd);
        set_up();
        assert_true(a.n == 2 && a.error[1] == 0 && b.n == 0);
        done();
}

/* Policies. */

static void load(const char *rule, Answers *a) {
        char copy[64];

        (void) snprintf(copy, sizeof(copy), "%s", rule);
        assert_ok(host_network_load_policy(manager.network, &(SandboxPolicy) { .allow = (char *[]) { copy, NULL } }, on_policy, a));
}

TEST(equal_rules_are_loaded_once) {
        static char one[] = "example.com", two[] = "8.8.8.8";
        const SandboxPolicy p = { .allow = (char *[]) { one, two, NULL } }, same = { .allow = (char *[]) { two, one, NULL } };
        Answers a = {}, b = {}, c = {};

        make(0);
        set_up();
        assert_ok(host_network_load_policy(manager.network, &p, on_policy, &a));
        assert_ok(host_network_load_policy(manager.network, &same, on_policy, &b));
        assert_true(a.n == 0 && b.n == 0);
        FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_LOAD);
        assert_eq(q.n_texts, 2);
        assert_streq(q.texts[0], "example.com");
        assert_eq(fake_netd_answer(&netd, &q), 3);
        assert_true(a.n == 1 && b.n == 1 && a.policy == b.policy && a.id == 3);
        /* And from here on at once. */
        assert_ok(host_network_load_policy(manager.network, &same, on_policy, &c));
        assert_true(c.n == 1 && c.policy == a.policy && fake_netd_idle(&netd));
        loaded_policy_unref(a.policy);
        loaded_policy_unref(b.policy);
        loaded_policy_unref(c.policy);
        done();
}

TEST(those_that_are_always_there) {
        Answers a = {}, b = {};

        make(0);
        set_up();
        assert_ok(host_network_load_policy(manager.network, &SANDBOX_POLICY_INIT, on_policy, &a));
        assert_ok(host_network_load_policy(manager.network, &(SandboxPolicy) { .internet = true }, on_policy, &b));
        assert_true(a.policy == host_network_deny_policy(manager.network) && b.policy == host_network_internet_policy(manager.network));
        assert_true(a.n == 1 && b.n == 1 && a.id != b.id);
        loaded_policy_unref(a.policy);
        loaded_policy_unref(b.policy);
        done();
}

TEST(a_policy_that_is_wrong_says_why_each_time) {
        Answers a = {}, b = {};

        make(0);
        set_up();
        load("8.8.8.8 tcp:70000", &a);
        FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_LOAD);
        fake_netd_fail(&netd, &q, -EINVAL, "Port 70000 is none");
        assert_true(a.n == 1 && a.error[0] == -EINVAL);
        assert_streq(a.message, "Port 70000 is none");
        load("8.8.8.8 tcp:70000", &b);
        q = fake_netd_take(&netd, NET_OP_POLICY_LOAD);
        fake_netd_fail(&netd, &q, -EINVAL, "Port 70000 is none");
        assert_true(b.n == 1 && b.error[0] == -EINVAL && fake_netd_idle(&netd));
        done();
}

TEST(the_longest_unused_ones_are_dropped) {
        char rule[32];

        make(0);
        set_up();
        for (unsigned i = 0; i < 66; i++) {
                Answers a = {};

                (void) snprintf(rule, sizeof(rule), "192.0.2.%u", i);
                load(rule, &a);
                assert_eq(answer(NET_OP_POLICY_LOAD), 3 + i);
                loaded_policy_unref(a.policy);
                if (i == 0) {
                        /* Used again: the next one is older. */
                        assert_true(fake_netd_idle(&netd));
                        continue;
                }
                if (i == 1) {
                        Answers again = {};
                        load("192.0.2.0", &again);
                        assert_eq(again.n, 1);
                        loaded_policy_unref(again.policy);
                }
                if (i >= 64) {
                        FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_DROP);
                        assert_eq(q.policy, i == 64 ? 4 : 3);
                        (void) fake_netd_answer(&netd, &q);
                }
        }
        assert_true(fake_netd_idle(&netd));
        done();
}

TEST(what_is_in_use_is_loaded_again_by_another_cube_netd) {
        Answers used = {}, unused = {};
        uint32_t id, flags;

        make(0);
        set_up();
        load("192.0.2.1", &used);
        (void) answer(NET_OP_POLICY_LOAD);
        load("192.0.2.2", &unused);
        (void) answer(NET_OP_POLICY_LOAD);
        loaded_policy_unref(unused.policy);

        netd.next_policy = 100;
        fake_netd_start(&netd);
        (void) answer(NET_OP_SETUP);
        /* Nobody is given the number of a table that is gone. */
        assert_true(!loaded_policy_get_entry(used.policy, &id, &flags));
        bool seen = false;
        for (unsigned i = 0; i < 3; i++) {
                FakeRequest q = fake_netd_take(&netd, NET_OP_POLICY_LOAD);
                uint32_t number = fake_netd_answer(&netd, &q);
                if (q.n_texts == 0)
                        continue;
                assert_streq(q.texts[0], "192.0.2.1");
                assert_true(loaded_policy_get_entry(used.policy, &id, &flags) && id == number);
                seen = true;
        }
        assert_true(seen && fake_netd_idle(&netd));
        loaded_policy_unref(used.policy);
        done();
}

TEST(another_mtu_makes_other_slots) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(256);
        HostNetworkInfo i;

        make(1);
        set_up();
        (void) answer(NET_OP_SLOT_NEW);
        tlv_put_str(&w, NET_TAG_UPLINK, "wlan0");
        tlv_put_u32(&w, NET_TAG_MTU, 1400);
        fake_netd_tell(&netd, NET_EVENT_UPLINK, &w);
        host_network_get_info(manager.network, &i);
        assert_streq(i.uplink, "wlan0");
        assert_true(i.mtu == 1400 && i.n_free_slots == 0);
        see_returned();
        (void) answer(NET_OP_SLOT_NEW);
        assert_eq(n_free(), 1);
        done();
}

TEST(free_slots_whose_links_somebody_takes_away_are_replaced) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(64);
        union bpf_attr attr = { .map_type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = sizeof(NetEntry), .max_entries = 16 };
        NetEntry e = {};
        uint32_t key = 3;

        netd.entries = (int) syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
        if (netd.entries < 0)
                test_skip("no BPF map can be made here");
        attr = (union bpf_attr) { .map_fd = (uint32_t) netd.entries, .key = (uintptr_t) &key, .value = (uintptr_t) &e };
        assert_eq(syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof(attr)), 0);
        make(2);
        set_up();
        assert_true(answer(NET_OP_SLOT_NEW) == 2 && answer(NET_OP_SLOT_NEW) == 3);
        tlv_put_u32(&w, NET_TAG_SLOT, 2);
        fake_netd_tell(&netd, NET_EVENT_LINKS_GONE, &w);
        assert_eq(n_free(), 1);
        see_returned();
        assert_eq(answer(NET_OP_SLOT_NEW), 4);
        assert_eq(n_free(), 2);
        done();
        netd.entries = safe_close(netd.entries);
}

TEST(what_was_denied_is_told_of_who_has_the_place_now) {
        struct sockaddr_un addr = { .sun_family = AF_UNIX };
        _cleanup_close_ int journal = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(256);
        static Sandbox paused = { .id = "aaaaaaaaaaaa", .slot = 5, .state = SANDBOX_PAUSED, .template_id = (char *) "t" };
        static Sandbox running = { .id = "bbbbbbbbbbbb", .slot = 5, .state = SANDBOX_RUNNING, .template_id = (char *) "t" };
        Sandbox *sandboxes[] = { &paused, &running, &paused };
        char entry[4096] = "";

        (void) snprintf(addr.sun_path, sizeof(addr.sun_path), "/tmp/cubed-test-host-network-%d", (int) getpid());
        (void) unlink(addr.sun_path);
        assert_ok(bind(journal, (struct sockaddr *) &addr, sizeof(addr)));
        make(0);
        set_up();
        assert_ok(audit_new(NULL, addr.sun_path, false, &manager.audit));
        manager.sandboxes = sandboxes;
        manager.n_sandboxes = ELEMENTSOF(sandboxes);
        tlv_put_u32(&w, NET_TAG_SLOT, 5);
        tlv_put_str(&w, NET_TAG_REASON, "policy");
        tlv_put_str(&w, NET_TAG_ADDRESS, "192.0.2.1");
        fake_netd_tell(&netd, NET_EVENT_DENIED, &w);
        manager.sandboxes = NULL;
        manager.n_sandboxes = 0;
        manager.audit = audit_free(manager.audit);
        (void) unlink(addr.sun_path);
        assert_true(recv(journal, entry, sizeof(entry) - 1, 0) > 0);
        assert_true(strstr(entry, "CUBE_SANDBOX=bbbbbbbbbbbb\n"));
        done();
}

TEST(a_smaller_pool_gives_back) {
        make(3);
        set_up();
        for (unsigned i = 0; i < 3; i++)
                (void) answer(NET_OP_SLOT_NEW);
        manager.config.free_slots = 1;
        host_network_reload(manager.network);
        see_returned();
        see_returned();
        assert_true(n_free() == 1 && fake_netd_idle(&netd));
        done();
}

TEST(limits_as_a_sandbox_and_the_configuration_have_them) {
        const NetLimits configured = { .bytes_out = UINT64_MAX, .bytes_in = 500, .packets_out = UINT32_MAX, .packets_in = 7, .flows_open = 1024 };
        const NetLimits own = { .bytes_in = UINT64_MAX, .packets_in = 8, .flows_open = UINT32_MAX };

        NetLimits l = net_limits_resolve(&(NetLimits) {}, &configured);
        assert_true(l.bytes_out == 0 && l.bytes_in == 500 && l.packets_out == 0 && l.packets_in == 7 && l.flows_open == 1024);
        l = net_limits_resolve(&own, &configured);
        assert_true(l.bytes_out == 0 && l.bytes_in == 0 && l.packets_out == 0 && l.packets_in == 8 && l.flows_open == 0);
        l = net_limits_over(&own, &configured);
        assert_true(l.bytes_out == UINT64_MAX && l.packets_in == 8 && l.flows_open == UINT32_MAX);
}

TEST(any_limit_is_one_that_was_given) {
        const NetLimits all[] = {
                { .bytes_out = 1 }, { .bytes_in = UINT64_MAX }, { .packets_out = 1 }, { .packets_in = 1 }, { .flows_new = 1 }, { .flows_open = 1 },
        };

        assert_true(!net_limits_given(&(NetLimits) {}));
        for (size_t i = 0; i < ELEMENTSOF(all); i++)
                assert_true(net_limits_given(&all[i]));
}

TEST(a_failure_has_one_name_on_the_bus) {
        assert_streq(network_error_name(-EINVAL), BUS_ERROR_INVALID_ARGUMENT);
        assert_streq(network_error_name(-E2BIG), BUS_ERROR_INVALID_ARGUMENT);
        assert_streq(network_error_name(-ENETDOWN), BUS_ERROR_HOST_UNSUPPORTED);
        assert_streq(network_error_name(-ENOSPC), BUS_ERROR_NO_RESOURCES);
        assert_streq(network_error_name(-ENOMEM), BUS_ERROR_NO_RESOURCES);
        assert_streq(network_error_name(-ECONNRESET), BUS_ERROR_INTERNAL);
}
