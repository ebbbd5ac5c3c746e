/* SPDX-License-Identifier: Apache-2.0 */

/* sandbox.json: written for good and found again, forgotten, and both at once; what is odd is refused. */

#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "daemon/capture.h"
#include "daemon/host-network.h"
#include "daemon/manager-private.h"
#include "daemon/sandbox-private.h"
#include "tests/unit/snapshot-fixture.h"

typedef struct Case {
        Fixture f;
        struct ManagerPrivate priv;
        Manager manager;
        char runtime[96];
        unsigned n_done;
        int error;
} Case;

static void case_init(Case *c) {
        *c = (Case) { .f = fixture_make() };
        fixture_load(&c->f);
        (void) snprintf(c->runtime, sizeof(c->runtime), "%s/run", c->f.dir.path);
        c->priv.state_fd = c->f.dir.fd;
        c->manager = (Manager) {
                .event = c->f.event, .priv = &c->priv, .store = c->f.client, .snapshots = c->f.store,
                .config.runtime_directory = c->runtime,
        };
        assert_ok(host_network_new(&c->manager, &c->manager.network));
        assert_ok(mkdirat(c->f.dir.fd, "sandboxes", 0700));
}

static void case_done(Case *c) {
        c->f.store->stopping = true;
        sandbox_forget_none(&c->manager);
        host_network_free(c->manager.network);
        fixture_done(&c->f);
}

static Sandbox *make_sandbox(Case *c) {
        Sandbox *s;

        assert_ok(sandbox_new(&c->manager, MADE_SANDBOX, &s));
        s->state = SANDBOX_PAUSING;
        s->owner_uid = 1000;
        s->template_id = strdup(MADE_TEMPLATE);
        s->hostname = strdup("host");
        s->labels = new0(char *, 2);
        s->labels[0] = strdup("a=b");
        s->mem_bytes = s->boot_mem_bytes = MADE_MEMORY;
        s->cpus = 1;
        s->cpu_quota_usec = USEC_PER_SEC;
        s->timeout_usec = 5 * USEC_PER_SEC;
        s->idle_timeout_usec = 7 * USEC_PER_SEC;
        s->on_timeout = SANDBOX_END_PAUSE_DISK;
        s->auto_resume = true;
        s->checkpoint_usec = UINT64_MAX;
        /* Of its VMM; none of it is kept. */
        s->deadline_usec = s->priv->deadline_boot_usec = 1;
        s->vmm_pid = 4711;
        s->slot = 7;
        strcpy(s->address4, "10.209.0.7");
        s->policy = loaded_policy_ref(host_network_internet_policy(c->manager.network));
        return s;
}

static void sandbox_done(Sandbox *s) {
        s->vmm_uid = 0;
        sandbox_free(s);
}

static void on_kept(int error, void *userdata) {
        Case *c = userdata;

        c->error = error;
        c->n_done++;
}

static int kept(Case *c, unsigned n) {
        while (c->n_done < n)
                assert_true(sd_event_run(c->f.event, 60 * USEC_PER_SEC) > 0);
        return c->error;
}

static bool there(const Case *c, const char *path) {
        return faccessat(c->f.dir.fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void settle_once(Case *c) {
        bool done = false;

        assert_ok(store_client_sync(c->f.client, c->f.dir.fd, on_flushed, &done));
        while (!done)
                assert_true(sd_event_run(c->f.event, 60 * USEC_PER_SEC) > 0);
}

/* Answers of cube-stored to all that was asked so far and to what follows from it. */
static void settle(Case *c) {
        for (unsigned i = 0; i < 20; i++)
                settle_once(c);
}

/* The same for what has to come of it: cube-stored has threads, of which one may be slow. */
#define assert_settles(c, condition)                                          \
        ({                                                                    \
                uint64_t _end = now_usec() + 60 * USEC_PER_SEC;               \
                while (!(condition) && now_usec() < _end)                     \
                        settle_once(c);                                       \
                assert_true(condition);                                       \
        })

TEST(what_is_kept_is_found_again) {
        Case c;
        Sandbox *s, *t;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_true(!sandbox_is_kept(&c.manager, s->id));
        assert_ok(kept(&c, 1));
        assert_true(sandbox_is_kept(&c.manager, s->id));

        assert_ok(sandbox_find_kept(&c.manager, s->id, &t));
        assert_true(t->state == SANDBOX_PAUSED && t->disk_top == n && t->memory_top == n && t->priv->kept);
        assert_true(t->owner_uid == 1000 && t->vmm_pid == 0 && t->vmm_uid == 0);
        assert_true(t->deadline_usec == UINT64_MAX && t->priv->deadline_boot_usec == UINT64_MAX);
        assert_true(t->timeout_usec == 5 * USEC_PER_SEC && t->idle_timeout_usec == 7 * USEC_PER_SEC);
        assert_true(t->on_timeout == SANDBOX_END_PAUSE_DISK && t->auto_resume && t->checkpoint_usec == UINT64_MAX);
        assert_streq(t->labels[0], "a=b");
        assert_eq(t->slot, 7);
        assert_streq(t->address4, "10.209.0.7");
        assert_true(t->policy == host_network_internet_policy(c.manager.network));
        sandbox_done(t);
        sandbox_done(s);
        snapshot_release(n);
        case_done(&c);
}

TEST(the_last_one_written_counts) {
        Case c;
        Sandbox *s, *t;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        s->timeout_usec = 9 * USEC_PER_SEC;
        assert_ok(sandbox_keep(s, SANDBOX_FAILED, n, on_kept, &c));
        assert_ok(kept(&c, 2));
        assert_ok(sandbox_find_kept(&c.manager, s->id, &t));
        assert_true(t->state == SANDBOX_FAILED && t->timeout_usec == 9 * USEC_PER_SEC);
        sandbox_done(t);
        sandbox_done(s);
        snapshot_release(n);
        case_done(&c);
}

TEST(who_waits_is_told_though_another_one_comes_behind) {
        Case c;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, NULL, NULL));
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, NULL, NULL));
        assert_ok(kept(&c, 1));
        settle(&c);
        assert_eq(c.n_done, 1);
        sandbox_done(s);
        snapshot_release(n);
        case_done(&c);
}

TEST(who_waits_for_one_that_is_replaced_by_another_waiter_s_is_told) {
        Case c, replaced = {};

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, NULL, NULL));
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &replaced));
        assert_eq(replaced.n_done, 0);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_true(replaced.n_done == 1 && replaced.error == -ECANCELED);
        assert_ok(kept(&c, 1));
        settle(&c);
        assert_true(c.n_done == 1 && replaced.n_done == 1);
        sandbox_done(s);
        snapshot_release(n);
        case_done(&c);
}

TEST(what_is_forgotten_is_gone) {
        Case c;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(kept(&c, 1));
        sandbox_set_tops(s, n, n);
        snapshot_release(n);

        /* It runs on the layers, of which the state is no part. */
        sandbox_forget_kept(s, n);
        assert_true(!there(&c, "sandboxes/" MADE_SANDBOX));
        assert_true(n->kind == SNAPSHOT_PAUSE);
        assert_settles(&c, n->kind == SNAPSHOT_LAYER && n->n_users == 2);
        sandbox_done(s);
        assert_settles(&c, c.f.store->n_snapshots == 0);
        case_done(&c);
}

TEST(what_the_paused_one_stood_on_can_be_removed_at_once) {
        Case c;

        case_init(&c);
        Snapshot *below = fixture_publish(&c.f, SNAPSHOT_USER, NULL, 1, 1);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, below, 2, 2);
        /* of the one that it was forked from */
        below->sandbox_id[0]++;
        Sandbox *s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(kept(&c, 1));
        sandbox_set_tops(s, n, n);
        snapshot_release(n);
        assert_true(snapshot_next_above(below, NULL) == n);
        sandbox_forget_kept(s, n);
        sandbox_done(s);
        assert_eq(c.f.store->n_snapshots, 2);
        assert_true(!snapshot_next_above(below, NULL));
        snapshot_release(below);
        assert_ok(snapshot_remove(below, NULL, NULL));
        assert_settles(&c, c.f.store->n_snapshots == 0);
        case_done(&c);
}

TEST(with_its_sandbox_the_snapshot_goes_too) {
        Case c;
        char id[21];

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        strcpy(id, n->id);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(kept(&c, 1));
        sandbox_set_tops(s, n, n);
        snapshot_release(n);
        sandbox_forget_kept(s, n);
        sandbox_done(s);
        /* Not before the file is gone for good. */
        assert_true(snapshot_store_find(c.f.store, id));
        assert_settles(&c, !snapshot_store_find(c.f.store, id));
        case_done(&c);
}

/* On a disk that takes no change: the next cubed finds it paused. */
TEST(what_can_not_be_removed_keeps_its_snapshot) {
        const char *file = "sandboxes/" MADE_SANDBOX "/sandbox.json";
        Case c;
        char id[21];

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        strcpy(id, n->id);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(kept(&c, 1));
        sandbox_set_tops(s, n, n);
        snapshot_release(n);
        assert_ok(unlinkat(c.f.dir.fd, file, 0));
        assert_ok(mkdirat(c.f.dir.fd, file, 0700));

        sandbox_forget_kept(s, n);
        sandbox_done(s);
        settle(&c);
        n = snapshot_store_find(c.f.store, id);
        assert_true(n && n->kind == SNAPSHOT_PAUSE);
        assert_true(there(&c, file));
        case_done(&c);
}

TEST(forgotten_while_it_is_written) {
        Case c;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        sandbox_forget_kept(s, NULL);
        (void) kept(&c, 1);
        assert_true(!there(&c, "sandboxes/" MADE_SANDBOX));

        /* Or its sandbox goes. */
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        sandbox_done(s);
        (void) kept(&c, 2);
        assert_true(!there(&c, "sandboxes/" MADE_SANDBOX));
        snapshot_release(n);
        case_done(&c);
}

TEST(forgotten_while_it_is_written_the_snapshot_goes_behind_the_file) {
        Case c;
        char id[21];

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        strcpy(id, n->id);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        sandbox_forget_kept(s, NULL);
        /* As when a pause is called off. */
        n->kind = SNAPSHOT_FORK;
        snapshot_release(n);
        (void) kept(&c, 1);
        assert_true(!there(&c, "sandboxes/" MADE_SANDBOX));
        assert_true(snapshot_store_find(c.f.store, id));
        assert_settles(&c, !snapshot_store_find(c.f.store, id));
        sandbox_done(s);
        case_done(&c);
}

typedef enum Death {
        DEATH_BEHIND,  /* it was asked, and has not answered */
        DEATH_KNOWN,
        DEATH_UNKNOWN, /* the loop has not seen it yet */
} Death;

static void forget_without_store(Death death) {
        Case c;
        char id[21];

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        strcpy(id, n->id);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(kept(&c, 1));
        sandbox_set_tops(s, n, n);
        snapshot_release(n);
        if (death == DEATH_BEHIND)
                assert_ok(kill(c.f.stored, SIGSTOP));
        else
                fixture_kill_stored(&c.f);
        while (death == DEATH_KNOWN && sd_event_run(c.f.event, 0) > 0)
                ;
        /* The first request behind its end may be told another thing by the socket than those behind it. */
        if (death == DEATH_UNKNOWN)
                assert_eq(store_client_remove(c.f.client, "nothing", NULL, NULL), -ENOTCONN);
        sandbox_forget_kept(s, n);
        fixture_kill_stored(&c.f);
        while (sd_event_run(c.f.event, 0) > 0)
                ;
        sandbox_done(s);
        n = snapshot_store_find(c.f.store, id);
        assert_true(n && n->kind == SNAPSHOT_PAUSE);
        fixture_start_stored(&c.f);
        sandbox_forget_again(&c.manager);
        assert_settles(&c, !snapshot_store_find(c.f.store, id));
        case_done(&c);
}

TEST(when_the_store_dies_the_snapshot_stays_as_it_is_until_there_is_another) {
        forget_without_store(DEATH_BEHIND);
}

TEST(without_a_store_it_does_as_well) {
        forget_without_store(DEATH_KNOWN);
}

TEST(without_one_of_which_that_is_not_known_yet_it_does_as_well) {
        forget_without_store(DEATH_UNKNOWN);
}

TEST(a_cubed_that_goes_down_leaves_it_to_the_next) {
        Case c;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        c.f.store->stopping = true;
        sandbox_done(s);
        assert_ok(kept(&c, 1));
        assert_true(there(&c, "sandboxes/" MADE_SANDBOX "/sandbox.json"));
        snapshot_release(n);
        case_done(&c);
}

TEST(one_whose_snapshot_is_lost_is_failed) {
        Case c;
        Sandbox *s, *t;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(kept(&c, 1));
        snapshot_release(n);
        assert_ok(sandbox_find_kept(&c.manager, s->id, &t));
        assert_true(t->state == SANDBOX_FAILED && t->priv->layers_unknown && !t->disk_top);
        sandbox_done(t);
        sandbox_done(s);
        case_done(&c);
}

TEST(what_is_forgotten_is_not_written_any_more) {
        Case c;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        sandbox_forget_kept(s, NULL);
        snapshot_release(n);
        assert_eq(kept(&c, 2), -ECANCELED);
        assert_true(!there(&c, "sandboxes/" MADE_SANDBOX));
        sandbox_done(s);
        case_done(&c);
}

TEST(a_change_to_one_whose_snapshot_is_not_found_does_not_make_it_forget_which) {
        Case c;
        Sandbox *s, *t;
        char id[21];

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        strcpy(id, n->id);
        s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(kept(&c, 1));
        snapshot_release(n);
        assert_ok(sandbox_find_kept(&c.manager, s->id, &t));
        sandbox_keep_again(t);
        settle(&c);
        _cleanup_free_ char *text = NULL;
        assert_ok(read_file(c.f.dir.fd, "sandboxes/" MADE_SANDBOX "/sandbox.json", 65536, &text, NULL));
        assert_true(strstr(text, id));
        sandbox_done(t);
        sandbox_done(s);
        case_done(&c);
}

TEST(while_cubed_starts_the_snapshot_does_not_go_with_one_that_can_not_be_read) {
        Case c;
        Sandbox *s, *t;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        s = make_sandbox(&c);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(kept(&c, 1));
        c.f.store->starting = true;
        snapshot_release(n);
        assert_ok(sandbox_find_kept(&c.manager, s->id, &t));
        assert_true(n->n_users == 2);
        sandbox_done(t);
        sandbox_done(s);
        assert_eq(c.f.store->n_snapshots, 1);
        case_done(&c);
}

static void replace(const Case *c, const char *text) {
        _cleanup_close_ int fd = openat(c->f.dir.fd, "sandboxes/" MADE_SANDBOX "/sandbox.json", O_WRONLY|O_TRUNC|O_CLOEXEC);

        assert_ok(fd);
        assert_ok(write_full(fd, text, strlen(text)));
}

TEST(what_is_odd_is_refused) {
        static const char *const states[] = { "creating", "running", "pausing", "resuming", "stopping" };
        _cleanup_free_ char *text = NULL;
        Case c;
        Sandbox *s, *t;

        case_init(&c);
        Snapshot *n = fixture_publish(&c.f, SNAPSHOT_PAUSE, NULL, 1, 1);
        s = make_sandbox(&c);
        assert_true(sandbox_find_kept(&c.manager, s->id, &t) < 0);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, &c));
        assert_ok(kept(&c, 1));
        for (size_t i = 0; i < ELEMENTSOF(states); i++) {
                _cleanup_free_ char *odd = NULL;

                assert_ok(sandbox_format_kept(s, sandbox_state_from_string(states[i]), n, &odd));
                replace(&c, odd);
                assert_eq(sandbox_find_kept(&c.manager, s->id, &t), -EBADMSG);
        }
        replace(&c, "");
        assert_true(sandbox_find_kept(&c.manager, s->id, &t) < 0);
        replace(&c, "{}");
        assert_true(sandbox_find_kept(&c.manager, s->id, &t) < 0);
        /* Of another. */
        assert_ok(sandbox_format_kept(s, SANDBOX_PAUSED, n, &text));
        memcpy(strstr(text, MADE_SANDBOX), "oooo", 4);
        replace(&c, text);
        assert_eq(sandbox_find_kept(&c.manager, s->id, &t), -EBADMSG);
        sandbox_done(s);
        snapshot_release(n);
        case_done(&c);
}

/* Another policy. */

static void on_set(Sandbox *s, const sd_bus_error *error, void *userdata) {
        Case *c = userdata;

        c->error = -sd_bus_error_get_errno(error);
        c->n_done++;
}

/* A paused sandbox whose network policy, once the world, is being written as nothing at all. */
static Sandbox *start_set(Case *c, Snapshot **ret) {
        LoadedPolicy *deny;

        case_init(c);
        deny = host_network_deny_policy(c->manager.network);
        Snapshot *n = *ret = fixture_publish(&c->f, SNAPSHOT_PAUSE, NULL, 1, 1);
        Sandbox *s = make_sandbox(c);
        s->state = SANDBOX_PAUSED;
        sandbox_set_tops(s, n, n);
        assert_ok(sandbox_keep(s, SANDBOX_PAUSED, n, on_kept, c));
        assert_ok(kept(c, 1));
        c->n_done = 0;
        assert_ok(sandbox_set_policy(s, deny, on_set, c, NULL));
        while (s->policy != deny)
                assert_true(sd_event_run(c->f.event, 60 * USEC_PER_SEC) > 0);
        assert_eq(c->n_done, 0);
        return s;
}

static LoadedPolicy *policy_on_disk(Case *c, const Sandbox *s) {
        Sandbox *t;

        assert_ok(sandbox_find_kept(&c->manager, s->id, &t));
        LoadedPolicy *p = t->policy;
        sandbox_done(t);
        return p;
}

TEST(a_policy_is_on_disk_when_it_is_answered) {
        Case c;
        Snapshot *n;

        Sandbox *s = start_set(&c, &n);
        assert_ok(kept(&c, 1));
        assert_true(s->policy == host_network_deny_policy(c.manager.network) && policy_on_disk(&c, s) == s->policy);
        sandbox_done(s);
        snapshot_release(n);
        case_done(&c);
}

/* As when its resume fails. */
TEST(a_policy_that_is_called_off_while_it_is_written_is_taken_back) {
        static const sd_bus_error e = SD_BUS_ERROR_MAKE_CONST(SD_BUS_ERROR_FAILED, "It could not be resumed");
        Case c;
        Snapshot *n;

        Sandbox *s = start_set(&c, &n);
        sandbox_drop_turns(s, &e);
        assert_true(c.n_done == 1 && c.error < 0);
        while (s->priv->keep_write)
                assert_true(sd_event_run(c.f.event, 60 * USEC_PER_SEC) > 0);
        assert_true(s->policy == host_network_internet_policy(c.manager.network) && policy_on_disk(&c, s) == s->policy);
        sandbox_done(s);
        snapshot_release(n);
        case_done(&c);
}

TEST(one_that_was_resumed_with_a_new_policy_keeps_it_though_it_is_not_written_any_more) {
        Case c;
        Snapshot *n;

        Sandbox *s = start_set(&c, &n);
        s->state = SANDBOX_RUNNING;
        s->priv->net_open = true;
        sandbox_forget_kept(s, n);
        assert_ok(kept(&c, 1));
        assert_true(s->policy == host_network_deny_policy(c.manager.network));
        settle(&c);
        sandbox_done(s);
        snapshot_release(n);
        settle(&c);
        case_done(&c);
}

TEST(a_policy_that_could_not_be_written_is_taken_back) {
        Case c;
        Snapshot *n;

        Sandbox *s = start_set(&c, &n);
        fixture_kill_stored(&c.f);
        assert_true(kept(&c, 1) < 0);
        assert_true(s->policy == host_network_internet_policy(c.manager.network));
        sandbox_done(s);
        snapshot_release(n);
        case_done(&c);
}
