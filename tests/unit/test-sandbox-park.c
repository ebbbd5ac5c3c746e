/* SPDX-License-Identifier: Apache-2.0 */

/* A paused sandbox waits for connections, which another program's part stands for: what is readable in place of its tap. The
 * map that says what the filter does is a real one: needs root. */

#include <linux/bpf.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd-util.h"
#include "daemon/parked-tap.h"
#include "daemon/sandbox-private.h"
#include "tests/unit/fake-netd.h"
#include "tests/unit/test.h"

#define SLOT 5U

static struct ManagerPrivate priv;
static Manager manager;
static FakeNetd netd = { .manager = &manager, .fd = -EBADF };
static Sandbox *one, *two, *sandboxes[100];
static Template template;
static Snapshot snapshot;
static unsigned n_resumes, n_begins, n_ends, n_taken;
static int resume_result;

int __wrap_sandbox_resume(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error);
int __wrap_sandbox_resume(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error) {
        assert_true(memory);
        n_resumes++;
        return resume_result < 0 ? sd_bus_error_set_errno(error, resume_result) : 0;
}

int __wrap_parked_tap_begin(int fd);
int __wrap_parked_tap_begin(int fd) {
        n_begins++;
        return 0;
}

int __wrap_parked_tap_end(int fd);
int __wrap_parked_tap_end(int fd) {
        n_ends++;
        return 0;
}

static const char *deepest, *highest;

int __real_host_network_take_slot(HostNetwork *n, uint32_t slot, NetworkSlotDone done, void *userdata);
int __wrap_host_network_take_slot(HostNetwork *n, uint32_t slot, NetworkSlotDone done, void *userdata);
int __wrap_host_network_take_slot(HostNetwork *n, uint32_t slot, NetworkSlotDone done, void *userdata) {
        const char *here = __builtin_frame_address(0);

        deepest = !deepest || here < deepest ? here : deepest;
        highest = here > highest ? here : highest;
        return __real_host_network_take_slot(n, slot, done, userdata);
}

static int bpf(int cmd, union bpf_attr *attr) {
        return (int) syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

static void set_entry(uint32_t slot) {
        NetEntry e = { .policy = 9, .generation = 7, .owner = UINT32_MAX, .flags = NET_ENTRY_CLOSED };
        union bpf_attr attr = { .map_fd = (uint32_t) netd.entries, .key = (uintptr_t) &slot, .value = (uintptr_t) &e };

        assert_eq(bpf(BPF_MAP_UPDATE_ELEM, &attr), 0);
}

static NetEntry get_entry(uint32_t slot) {
        NetEntry e = {};

        assert_ok(net_client_get_entry(manager.net, slot, &e));
        return e;
}

static uint32_t answer(NetOp op) {
        FakeRequest q = fake_netd_take(&netd, op);
        return fake_netd_answer(&netd, &q);
}

static Sandbox *add(const char *id, uint32_t slot) {
        Sandbox *s;

        assert_ok(sandbox_new(&manager, id, &s));
        s->state = SANDBOX_PAUSED;
        s->owner_uid = 1000;
        s->slot = slot;
        s->auto_resume = true;
        s->policy = loaded_policy_ref(host_network_internet_policy(manager.network));
        s->memory_top = &snapshot;
        s->priv->template = &template;
        sandboxes[manager.n_sandboxes++] = s;
        set_entry(slot);
        return s;
}

static void make(void) {
        union bpf_attr attr = { .map_type = BPF_MAP_TYPE_HASH, .key_size = 4, .value_size = sizeof(NetEntry), .max_entries = 16 };

        netd.entries = bpf(BPF_MAP_CREATE, &attr);
        if (netd.entries < 0)
                test_skip("no BPF map can be made here");
        netd.next_policy = 1;
        n_resumes = n_begins = n_ends = n_taken = 0;
        deepest = highest = NULL;
        resume_result = 0;
        manager = (Manager) { .priv = &priv, .sandboxes = sandboxes, .config = { .runtime_directory = (char *) "/tmp", .network4 = (char *) "auto" } };
        assert_ok(sd_event_new(&manager.event));
        assert_ok(net_client_new(manager.event, &manager.net));
        assert_ok(host_network_new(&manager, &manager.network));
        host_network_start(manager.network);
        one = add("abcdefghijklmnop", SLOT);
        two = add("bbbbbbbbbbbbbbbb", SLOT + 1);
}

static void set_up(void) {
        fake_netd_start(&netd);
        (void) answer(NET_OP_SETUP);
        (void) answer(NET_OP_POLICY_LOAD);
        (void) answer(NET_OP_POLICY_LOAD);
}

static void done(void) {
        size_t n = manager.n_sandboxes;

        manager.n_sandboxes = 0;
        for (size_t i = 0; i < n; i++) {
                sandboxes[i]->memory_top = NULL;
                sandboxes[i]->priv->template = NULL;
                sandbox_free(sandboxes[i]);
        }
        fake_netd_stop(&netd);
        manager.network = host_network_free(manager.network);
        manager.net = net_client_free(manager.net);
        manager.event = sd_event_unref(manager.event);
        netd.entries = safe_close(netd.entries);
}

static int new_tap(void) {
        int fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);

        assert_ok(fd);
        return fd;
}

static void run(void) {
        for (unsigned i = 0; i < 10; i++)
                (void) sd_event_run(manager.event, 0);
}

static void connect_to(const Sandbox *s) {
        uint64_t value = 1;

        assert_eq(write(s->priv->tap_fd, &value, sizeof(value)), (ssize_t) sizeof(value));
        run();
}

static void assert_parked(const Sandbox *s) {
        NetEntry e = get_entry(s->slot);

        assert_true(s->priv->park == PARK_PARKED && s->priv->net_parked && !s->priv->net_open);
        assert_true(e.policy == NET_POLICY_DENY && e.flags == NET_ENTRY_PARKED && e.owner == 1000 && e.generation > 7);
}

static void on_taken(Sandbox *s) {
        n_taken++;
}

/* Its turn for links comes. */
static void assert_asked(uint32_t slot) {
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);

        assert_eq(q.slot, slot);
        set_entry(slot);
        (void) fake_netd_answer(&netd, &q);
}

TEST(with_the_links_of_its_vmm_it_is_parked_by_one_write) {
        make();
        set_up();
        sandbox_park(one, new_tap(), new_tap());
        assert_parked(one);
        assert_true(n_begins == 1 && fake_netd_idle(&netd));
        run();
        assert_eq(n_resumes, 0);
        done();
}

TEST(what_comes_resumes_it_once) {
        make();
        set_up();
        sandbox_park(one, new_tap(), new_tap());
        for (unsigned i = 0; i < 20; i++)
                connect_to(one);
        assert_true(n_resumes == 1 && one->priv->auto_resuming);
        assert_true(!two->priv->auto_resuming);
        done();
}

TEST(who_is_resumed_takes_what_it_was_parked_with) {
        make();
        set_up();
        int netns = new_tap(), tap = new_tap();
        sandbox_park(one, netns, tap);
        one->state = SANDBOX_RESUMING;
        assert_ok(sandbox_take_slot(one, on_taken, NULL));
        assert_true(n_ends == 1 && one->priv->park == PARK_NONE && n_taken == 0);
        run();
        assert_true(n_taken == 1 && one->priv->netns_fd == netns && one->priv->tap_fd == tap);
        assert_true(fake_netd_idle(&netd));
        /* Somebody may wait there until it is opened. */
        assert_true(get_entry(SLOT).flags == NET_ENTRY_PARKED && one->priv->net_parked);
        assert_eq(sandbox_network_open(one, NULL), 1);
        assert_true(get_entry(SLOT).flags == 0 && !one->priv->net_parked);
        done();
}

TEST(who_does_not_park_gives_its_links_up) {
        make();
        set_up();
        one->auto_resume = false;
        sandbox_park(one, new_tap(), new_tap());
        one->auto_resume = true;
        one->memory_top = NULL;
        sandbox_park(one, new_tap(), new_tap());
        one->memory_top = &snapshot;
        one->state = SANDBOX_FAILED;
        sandbox_park(one, new_tap(), new_tap());
        for (unsigned i = 0; i < 3; i++) {
                FakeRequest q = fake_netd_take(&netd, NET_OP_PING);
                assert_eq(q.n_fds, 2);
        }
        assert_true(one->priv->park == PARK_NONE && n_begins == 0 && get_entry(SLOT).generation == 7);
        done();
}

TEST(links_are_made_for_one_after_the_other) {
        make();
        set_up();
        manager_park_sandboxes(&manager);
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
        assert_eq(q.slot, SLOT);
        assert_true(fake_netd_idle(&netd));
        (void) fake_netd_answer(&netd, &q);
        assert_parked(one);
        assert_asked(SLOT + 1);
        assert_parked(two);
        assert_true(fake_netd_idle(&netd));
        done();
}

TEST(they_are_waited_for_until_there_is_a_network) {
        make();
        manager_park_sandboxes(&manager);
        run();
        set_up();
        assert_asked(SLOT);
        assert_parked(one);
        done();
}

/* The stack of the loop is none that grows with the number of sandboxes. */
TEST(of_many_that_can_not_be_parked_each_is_asked_for_once_and_by_itself) {
        char id[] = "ccccccccccccca00";

        make();
        while (manager.n_sandboxes < ELEMENTSOF(sandboxes)) {
                id[14] = (char) ('0' + manager.n_sandboxes / 10 % 10);
                id[15] = (char) ('0' + manager.n_sandboxes % 10);
                (void) add(id, SLOT);
        }
        manager_park_sandboxes(&manager);
        fake_netd_start(&netd);
        FakeRequest q = fake_netd_take(&netd, NET_OP_SETUP);
        fake_netd_fail(&netd, &q, -EADDRINUSE, "It overlaps");
        run();
        for (size_t i = 0; i < manager.n_sandboxes; i++)
                assert_true(sandboxes[i]->priv->park == PARK_NONE && sandboxes[i]->priv->park_timer);
        assert_true(highest - deepest < 8192);
        done();
}

TEST(who_is_resumed_meanwhile_waits_for_the_links_that_are_being_made) {
        make();
        set_up();
        sandbox_park(one, -EBADF, -EBADF);
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
        one->state = SANDBOX_RESUMING;
        assert_ok(sandbox_take_slot(one, on_taken, NULL));
        assert_true(fake_netd_idle(&netd) && n_taken == 0);
        (void) fake_netd_answer(&netd, &q);
        run();
        assert_true(n_taken == 1 && one->priv->tap_fd >= 0 && n_begins == 0);
        done();
}

TEST(who_goes_meanwhile_is_not_parked_and_the_next_one_is) {
        make();
        set_up();
        manager_park_sandboxes(&manager);
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
        one->state = SANDBOX_STOPPING;
        sandbox_drop_park(one);
        (void) fake_netd_answer(&netd, &q);
        assert_true(one->priv->tap_fd < 0 && n_begins == 0);
        assert_asked(SLOT + 1);
        assert_parked(two);
        done();
}

TEST(an_address_that_is_gone_is_another_one) {
        make();
        netd.next_slot = SLOT + 2;
        set_up();
        sandbox_park(one, -EBADF, -EBADF);
        FakeRequest q = fake_netd_take(&netd, NET_OP_SLOT_NEW);
        fake_netd_fail(&netd, &q, -EEXIST, "Slot 5 is in use");
        set_entry(SLOT + 2);
        assert_asked(0);
        assert_eq(one->slot, SLOT + 2);
        assert_parked(one);
        done();
}

TEST(a_resume_that_can_not_begin_refuses_who_waits_and_is_not_tried_at_once) {
        make();
        set_up();
        resume_result = -ENOSPC;
        sandbox_park(one, new_tap(), new_tap());
        connect_to(one);
        assert_true(n_resumes == 1 && !one->priv->auto_resuming && one->priv->park == PARK_NONE);
        /* The links go as well. */
        FakeRequest q = fake_netd_take(&netd, NET_OP_QUIESCE);
        assert_eq(q.slot, SLOT);
        FakeRequest closed = fake_netd_take(&netd, NET_OP_PING);
        assert_eq(closed.n_fds, 2);
        (void) fake_netd_answer(&netd, &q);
        assert_true(!one->priv->net_parked && one->priv->park_timer);
        uint64_t first = one->priv->park_delay_usec;
        assert_asked(SLOT);
        assert_parked(one);
        connect_to(one);
        assert_true(n_resumes == 2 && one->priv->park_delay_usec == 2 * first);
        for (unsigned i = 0; i < 20; i++)
                sandbox_park_later(one);
        assert_eq(one->priv->park_delay_usec, 60 * USEC_PER_SEC);
        done();
}

static void take_entry(uint32_t slot) {
        union bpf_attr attr = { .map_fd = (uint32_t) netd.entries, .key = (uintptr_t) &slot };

        assert_eq(bpf(BPF_MAP_DELETE_ELEM, &attr), 0);
}

static void tell_links_gone(uint32_t slot) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(64);

        if (slot > 0)
                tlv_put_u32(&w, NET_TAG_SLOT, slot);
        fake_netd_tell(&netd, NET_EVENT_LINKS_GONE, &w);
}

/* Its links have gone, and others are made. */
static void assert_parked_anew(Sandbox *s) {
        FakeRequest q = fake_netd_take(&netd, NET_OP_QUIESCE), closed = fake_netd_take(&netd, NET_OP_PING);

        assert_true(q.slot == s->slot && closed.n_fds == 2);
        (void) fake_netd_answer(&netd, &q);
        assert_asked(s->slot);
        assert_parked(s);
        assert_eq(n_resumes, 0);
}

TEST(whose_links_somebody_takes_away_is_parked_anew) {
        make();
        set_up();
        sandbox_park(one, new_tap(), new_tap());
        sandbox_park(two, new_tap(), new_tap());
        take_entry(SLOT);
        tell_links_gone(SLOT);
        assert_parked_anew(one);
        assert_parked(two);
        done();
}

TEST(news_of_links_that_have_been_made_again_are_old) {
        make();
        set_up();
        sandbox_park(one, new_tap(), new_tap());
        tell_links_gone(SLOT);
        assert_true(fake_netd_idle(&netd));
        assert_parked(one);
        done();
}

TEST(where_links_may_have_gone_unseen_all_are_looked_at) {
        make();
        set_up();
        sandbox_park(one, new_tap(), new_tap());
        sandbox_park(two, new_tap(), new_tap());
        take_entry(SLOT + 1);
        tell_links_gone(0);
        assert_parked_anew(two);
        assert_parked(one);
        done();
}

TEST(whose_links_went_while_cube_netd_was_away_is_parked_anew) {
        make();
        set_up();
        sandbox_park(one, new_tap(), new_tap());
        fake_netd_stop(&netd);
        take_entry(SLOT);
        set_up();
        assert_parked_anew(one);
        done();
}

TEST(it_is_closed_before_it_goes) {
        make();
        set_up();
        sandbox_park(one, new_tap(), new_tap());
        assert_true(sandbox_network_close(one, NULL));
        (void) answer(NET_OP_QUIESCE);
        assert_true(!one->priv->net_closing && !one->priv->net_parked);
        done();
}

TEST(who_connects_while_it_is_paused_is_told_nothing) {
        make();
        set_up();
        one->state = two->state = SANDBOX_PAUSING;
        one->priv->kept_as = two->priv->kept_as = SANDBOX_PAUSED;
        one->priv->net_open = two->priv->net_open = true;
        two->auto_resume = false;
        assert_true(sandbox_network_close(one, NULL));
        (void) answer(NET_OP_PARK);
        assert_true(sandbox_network_close(two, NULL));
        (void) answer(NET_OP_QUIESCE);
        done();
}

TEST(it_can_be_set_and_unset_while_it_is_paused) {
        make();
        set_up();
        one->auto_resume = false;
        assert_ok(sandbox_set_auto_resume(one, true, NULL));
        assert_asked(SLOT);
        assert_parked(one);
        assert_ok(sandbox_set_auto_resume(one, false, NULL));
        (void) answer(NET_OP_QUIESCE);
        assert_true(one->priv->park == PARK_NONE && one->priv->tap_fd < 0 && !one->priv->park_timer);
        done();
}
