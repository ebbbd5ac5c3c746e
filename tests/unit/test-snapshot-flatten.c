/* SPDX-License-Identifier: Apache-2.0 */

/* Chains become short, and what is seen from above stays the same: merged by the real cube-stored. */

#include "snapshot-view.h"

/* The template's, then n of that kind, each with a use that is the caller's; ret is n + 1 long. */
static void make_chain(Fixture *f, SnapshotKind kind, unsigned n, Snapshot **ret) {
        fixture_load(f);
        ret[0] = fixture_publish(f, SNAPSHOT_TEMPLATE, NULL, 0, 0x10);
        for (unsigned i = 1; i <= n; i++)
                ret[i] = fixture_publish(f, kind, ret[i - 1], i / 2, (uint8_t) (0x20 + i));
}

TEST(a_flat_snapshot_shows_what_the_chain_showed) {
        _cleanup_fixture_ Fixture f = fixture_make();
        Snapshot *c[6];
        char id[21];

        make_chain(&f, SNAPSHOT_USER, 5, c);
        Snapshot *s = c[5], *above = fixture_publish(&f, SNAPSHOT_USER, s, 9, 0x55);
        strcpy(id, s->id);
        View before = view_of(s), before_above = view_of(above), before_below = view_of(c[4]);
        assert_eq(before.memory[2], 0x25);
        assert_eq(before.disk[1], 0x23);
        assert_eq(before.memory[0], 0x21);
        assert_eq(snapshot_depth(s), 6);

        assert_ok(fixture_wait(&f, snapshot_flatten(s, on_fixture_done, &f)));
        assert_true(s->parent == c[0] && s->memory_parent == c[0]);
        assert_true(snapshot_depth(s) == 2 && snapshot_depth(above) == 3 && snapshot_depth(c[4]) == 5);
        assert_true(same_view(s, &before) && same_view(above, &before_above) && same_view(c[4], &before_below));
        assert_eq(f.n_changed, 1);
        assert_eq(s->n_users, 3);
        assert_eq(c[4]->n_users, 1);
        assert_eq(c[0]->n_users, 5);
        assert_true(fixture_goes(&f, id, "memory") && fixture_goes(&f, id, "disk"));
        assert_true(fixture_there(&f, id, "memory-1") && fixture_there(&f, id, "disk-1") && fixture_there(&f, id, "state"));
        /* The template's layer is not copied. */
        assert_true(s->file_bytes[SNAPSHOT_FILE_DISK] < 5 * PAGE);

        fixture_load(&f);
        assert_eq(f.store->n_warnings, 0);
        s = snapshot_store_find(f.store, id);
        assert_true(same_view(s, &before));
        assert_true(s->parent && s->parent->kind == SNAPSHOT_TEMPLATE && s->memory_parent == s->parent);

        /* and a second time, with one on top that is flat in the end too */
        Snapshot *t = fixture_publish(&f, SNAPSHOT_USER, s, 3, 0x77);
        View v = view_of(t);
        assert_ok(fixture_wait(&f, snapshot_flatten(t, on_fixture_done, &f)));
        assert_true(same_view(t, &v) && snapshot_depth(t) == 2);
}

TEST(without_a_template_s_snapshot_all_is_merged) {
        _cleanup_fixture_ Fixture f = fixture_make();

        fixture_load(&f);
        Snapshot *a = fixture_publish(&f, SNAPSHOT_USER, NULL, 1, 0x11);
        Snapshot *b = fixture_publish(&f, SNAPSHOT_USER, a, 2, 0x22);
        View v = view_of(b);
        assert_ok(fixture_wait(&f, snapshot_flatten(b, on_fixture_done, &f)));
        assert_true(same_view(b, &v) && !b->parent && !b->memory_parent && snapshot_depth(b) == 1);
        assert_eq(a->n_users, 1);
}

/* Booted from a disk that has layers: the memory has none. */
TEST(each_chain_is_merged_by_itself) {
        _cleanup_fixture_ Fixture f = fixture_make();
        static const uint8_t none[SNAPSHOT_ID_BYTES];
        Snapshot *c[3];
        char dir[48];

        make_chain(&f, SNAPSHOT_USER, 2, c);
        Snapshot *s = fixture_new(&f, SNAPSHOT_USER, NULL, 7, 0x77);
        assert_ok(snapshot_set_parents(s, c[2], NULL));
        (void) snprintf(dir, sizeof(dir), ".new-%s/memory", s->id);
        _cleanup_close_ int fd = openat(f.store->root_fd, dir, O_WRONLY|O_CLOEXEC);
        write_memory(fd, s->uuid, none, 7, 0x77);
        assert_ok(snapshot_publish(s));
        View v = view_of(s);
        assert_ok(fixture_wait(&f, snapshot_flatten(s, on_fixture_done, &f)));
        assert_true(same_view(s, &v) && s->parent == c[0] && !s->memory_parent);
        assert_true(fixture_there(&f, s->id, "memory") && fixture_there(&f, s->id, "disk-1"));
        assert_true(!fixture_there(&f, s->id, "memory-1"));
}

TEST(nothing_to_merge_is_done_at_once) {
        _cleanup_fixture_ Fixture f = fixture_make();
        Snapshot *c[2];

        make_chain(&f, SNAPSHOT_USER, 1, c);
        assert_ok(snapshot_flatten(c[1], on_fixture_done, &f));
        assert_eq(f.n_done, 0);
        assert_ok(fixture_wait(&f, 0));
        assert_ok(fixture_wait(&f, snapshot_flatten(c[0], on_fixture_done, &f)));
        assert_eq(f.n_changed, 0);
        assert_true(fixture_there(&f, c[1]->id, "memory") && c[1]->n_users == 1);
}

TEST(who_comes_later_waits_for_the_same) {
        _cleanup_fixture_ Fixture f = fixture_make();
        Snapshot *c[4];

        make_chain(&f, SNAPSHOT_USER, 3, c);
        View v = view_of(c[3]), below = view_of(c[2]);
        assert_ok(snapshot_flatten(c[3], on_fixture_done, &f));
        assert_ok(snapshot_flatten(c[3], on_fixture_done, &f));
        /* and one of its layers meanwhile */
        assert_ok(snapshot_flatten(c[2], on_fixture_done, &f));
        fixture_wait_all(&f, 3);
        assert_eq(f.n_changed, 2);
        assert_true(same_view(c[3], &v) && same_view(c[2], &below));
        assert_true(snapshot_depth(c[3]) == 2 && snapshot_depth(c[2]) == 2);
        assert_true(!fixture_there(&f, c[3]->id, "memory-2"));
}

TEST(what_only_the_old_chain_needed_goes) {
        _cleanup_fixture_ Fixture f = fixture_make();
        Snapshot *c[5];
        char ids[5][21];

        make_chain(&f, SNAPSHOT_FORK, 4, c);
        View v = view_of(c[4]);
        for (unsigned i = 0; i < 5; i++)
                strcpy(ids[i], c[i]->id);
        for (unsigned i = 1; i < 4; i++)
                snapshot_release(c[i]);
        assert_eq(f.n_removed, 0);
        assert_ok(fixture_wait(&f, snapshot_flatten(c[4], on_fixture_done, &f)));
        assert_eq(f.n_removed, 3);
        assert_eq(f.store->n_snapshots, 2);
        for (unsigned i = 1; i < 4; i++)
                assert_true(fixture_goes(&f, ids[i], ""));
        assert_true(same_view(c[4], &v));

        /* It was not asked to keep itself either. */
        Snapshot *a = fixture_publish(&f, SNAPSHOT_FORK, c[4], 1, 1);
        snapshot_release(c[4]);
        assert_ok(snapshot_flatten(a, on_fixture_done, &f));
        snapshot_release(a);
        assert_ok(fixture_wait(&f, 0));
        assert_eq(f.store->n_snapshots, 1);
}

TEST(a_flatten_and_other_changes_do_not_undo_each_other) {
        _cleanup_fixture_ Fixture f = fixture_make();
        Snapshot *c[4];
        char id[21];

        make_chain(&f, SNAPSHOT_USER, 3, c);
        View v = view_of(c[3]);
        strcpy(id, c[3]->id);
        assert_ok(snapshot_flatten(c[3], on_fixture_done, &f));
        assert_ok(snapshot_sync(c[3], on_fixture_done, &f));
        assert_ok(snapshot_remove(c[3], on_fixture_done, &f));
        fixture_wait_all(&f, 3);
        fixture_load(&f);
        assert_eq(f.store->n_warnings, 0);
        Snapshot *s = snapshot_store_find(f.store, id);
        assert_true(s && s->durable && s->kind == SNAPSHOT_LAYER && snapshot_depth(s) == 2 && same_view(s, &v));
}

/* cube-stored, and cubed with it, may end behind each of its answers. */
TEST(a_crash_at_any_point_leaves_the_old_or_the_new) {
        bool ended = false, old = false, new = false;

        for (unsigned n = 1; !ended; n++) {
                _cleanup_fixture_ Fixture f = fixture_make();
                Snapshot *c[5];
                char id[21];

                make_chain(&f, SNAPSHOT_USER, 4, c);
                Snapshot *s = c[4];
                strcpy(id, s->id);
                assert_ok(fixture_wait(&f, snapshot_sync(s, on_fixture_done, &f)));
                View v = view_of(s);
                unsigned done = f.n_done;
                assert_ok(snapshot_flatten(s, on_fixture_done, &f));
                for (unsigned i = 0; i < n && f.n_done == done; i++)
                        assert_true(sd_event_run(f.event, 60 * USEC_PER_SEC) > 0);
                ended = f.n_done > done;
                fixture_kill_stored(&f);
                store_client_detach(f.client);
                assert_eq(f.n_done, done + 1);
                assert_true(same_view(s, &v) && s->n_users == 1);

                fixture_start_stored(&f);
                fixture_load(&f);
                assert_eq(f.store->n_warnings, 0);
                s = snapshot_store_find(f.store, id);
                assert_true(same_view(s, &v));
                *(snapshot_depth(s) == 2 ? &new : &old) = true;
                snapshot_store_clean(f.store);
                assert_true(fixture_goes(&f, id, snapshot_depth(s) == 2 ? "memory" : "memory-1"));
                assert_true(fixture_goes(&f, id, snapshot_depth(s) == 2 ? "disk" : "disk-1"));
                assert_true(fixture_goes(&f, id, "snapshot.json.new"));

                /* It can be done again. */
                assert_ok(fixture_wait(&f, snapshot_flatten(s, on_fixture_done, &f)));
                assert_true(same_view(s, &v) && snapshot_depth(s) == 2);
        }
        assert_true(old && new);
}

TEST(a_layer_that_is_damaged_ends_it_and_changes_nothing) {
        _cleanup_fixture_ Fixture f = fixture_make();
        Snapshot *c[4];
        char path[160];

        make_chain(&f, SNAPSHOT_USER, 3, c);
        (void) snprintf(path, sizeof(path), "%s/%s/disk", f.root, c[2]->id);
        assert_ok(truncate(path, PAGE));
        assert_eq(fixture_wait(&f, snapshot_flatten(c[3], on_fixture_done, &f)), -ESTALE);
        assert_true(snapshot_depth(c[3]) == 4 && c[3]->n_users == 1 && c[0]->n_users == 3);
        assert_true(fixture_goes(&f, c[3]->id, "memory-1"));
        assert_true(fixture_there(&f, c[3]->id, "memory"));

        /* found out before anything is begun */
        (void) snprintf(path, sizeof(path), "%s/%s/memory", f.root, c[2]->id);
        assert_ok(truncate(path, 1));
        assert_eq(snapshot_flatten(c[3], on_fixture_done, &f), -ESTALE);
        assert_eq(c[3]->n_users, 1);
}

/* A failed attempt whose files could not be removed is in nobody's way. */
TEST(the_next_free_number_is_taken) {
        _cleanup_fixture_ Fixture f = fixture_make();
        Snapshot *c[3];
        char path[160];

        make_chain(&f, SNAPSHOT_USER, 2, c);
        (void) snprintf(path, sizeof(path), "%s/%s/memory-1", f.root, c[2]->id);
        close(open(path, O_WRONLY|O_CREAT|O_CLOEXEC, 0600));
        View v = view_of(c[2]);
        assert_ok(fixture_wait(&f, snapshot_flatten(c[2], on_fixture_done, &f)));
        assert_true(same_view(c[2], &v));
        assert_true(fixture_there(&f, c[2]->id, "memory-2") && fixture_there(&f, c[2]->id, "disk-1"));
}
