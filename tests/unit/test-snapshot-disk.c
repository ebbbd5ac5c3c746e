/* SPDX-License-Identifier: Apache-2.0 */

/* A disk that fails at each of the points at which something waits for it, and what is left then: in this cubed, and in
 * one that is started anew. */

#include "snapshot-view.h"

#define CALLS_MAX 32U /* of fsync() in anything that is done here */

typedef struct Case {
        Fixture f;
        FailingFsync disk;
} Case;

static void case_init(Case *c) {
        *c = (Case) { .f = fixture_make() };
        fixture_use_disk(&c->f, &c->disk);
        fixture_load(&c->f);
}

static void case_done(Case *c) {
        fixture_done(&c->f);
}
#define _cleanup_case_ _cleanup_(case_done)

static Snapshot *made_durable(Fixture *f, Snapshot *s) {
        assert_ok(fixture_wait(f, snapshot_sync(s, on_fixture_done, f)));
        return s;
}

/* As snapshots are that somebody asked for: seen from the moment on in which they are durable. */
static int ask_for(Fixture *f, Snapshot *s) {
        return fixture_wait(f, snapshot_sync_as(s, SNAPSHOT_USER, on_fixture_done, f));
}

TEST(nobody_sees_a_snapshot_that_is_not_on_the_disk) {
        unsigned nth = 1;
        int r = -EIO;

        for (; r < 0; nth++) {
                _cleanup_case_ Case c;
                char id[21], below[21];

                case_init(&c);
                /* one of the layers had not reached the disk yet either */
                Snapshot *k = fixture_publish(&c.f, SNAPSHOT_CHECKPOINT, NULL, 1, 0x11);
                Snapshot *s = fixture_publish(&c.f, SNAPSHOT_FORK, k, 2, 0x22);
                View v = view_of(s);
                strcpy(id, s->id);
                strcpy(below, k->id);
                failing_fsync_set(&c.disk, nth);
                r = ask_for(&c.f, s);
                assert_true(r == 0 || r == -EIO);
                assert_true(s->durable == (r == 0) && s->kind == (r == 0 ? SNAPSHOT_USER : SNAPSHOT_FORK));
                assert_true(same_view(s, &v));

                /* for a cubed that is started anew, too, though nothing was written to say so */
                fixture_load(&c.f);
                s = snapshot_store_find(c.f.store, id);
                assert_true(s && s->durable == (r == 0) && s->kind == (r == 0 ? SNAPSHOT_USER : SNAPSHOT_FORK));
                assert_true(snapshot_store_find(c.f.store, below));
                assert_true(nth < CALLS_MAX);
        }
        /* two times three files, two directories, snapshot.json and what it is renamed in */
        assert_true(nth > 14);
}

/* The kernel tells of what it could not write once, and has forgotten it then. */
TEST(what_the_disk_has_refused_does_not_become_durable_when_it_is_asked_again) {
        _cleanup_case_ Case c;

        case_init(&c);
        Snapshot *t = made_durable(&c.f, fixture_publish(&c.f, SNAPSHOT_TEMPLATE, NULL, 0, 0x10));
        Snapshot *s = fixture_publish(&c.f, SNAPSHOT_FORK, t, 1, 0x11);
        failing_fsync_set(&c.disk, 2);
        assert_eq(ask_for(&c.f, s), -EIO);
        failing_fsync_set(&c.disk, 0);
        assert_eq(ask_for(&c.f, s), -EIO);

        Snapshot *above = fixture_publish(&c.f, SNAPSHOT_FORK, s, 2, 0x22);
        assert_eq(ask_for(&c.f, above), -EIO);
        assert_true(!s->durable && !above->durable && above->kind == SNAPSHOT_FORK);
        /* nor by being copied out of memory that the disk need not agree with */
        assert_eq(fixture_wait(&c.f, snapshot_flatten(above, on_fixture_done, &c.f)), -EIO);

        Snapshot *beside = fixture_publish(&c.f, SNAPSHOT_FORK, t, 3, 0x33);
        assert_ok(ask_for(&c.f, beside));
        assert_true(beside->durable && beside->kind == SNAPSHOT_USER);
}

TEST(a_cube_stored_that_ended_is_no_damage) {
        _cleanup_case_ Case c;

        case_init(&c);
        Snapshot *s = fixture_publish(&c.f, SNAPSHOT_FORK, NULL, 1, 0x11);
        assert_ok(kill(c.f.stored, SIGSTOP));
        assert_ok(snapshot_sync_as(s, SNAPSHOT_USER, on_fixture_done, &c.f));
        fixture_use_disk(&c.f, &c.disk);
        assert_eq(c.f.error, -ECONNRESET);
        assert_ok(ask_for(&c.f, s));
        assert_true(s->durable && s->kind == SNAPSHOT_USER);
}

TEST(one_that_was_made_durable_by_another_is_asked_for_behind_that) {
        _cleanup_case_ Case c;

        case_init(&c);
        Snapshot *s = fixture_publish(&c.f, SNAPSHOT_FORK, NULL, 1, 0x11);
        (void) made_durable(&c.f, fixture_publish(&c.f, SNAPSHOT_CHECKPOINT, s, 2, 0x22));
        assert_true(s->durable && s->kind == SNAPSHOT_FORK);
        assert_ok(ask_for(&c.f, s));
        assert_eq(s->kind, SNAPSHOT_USER);
}

/* Gone or not: what is left of it can be loaded. */
TEST(a_removal_that_the_disk_refuses_leaves_a_snapshot_or_a_layer) {
        unsigned nth = 1;
        int r = -EIO;

        for (; r < 0; nth++) {
                _cleanup_case_ Case c;
                char id[21];

                case_init(&c);
                Snapshot *s = made_durable(&c.f, fixture_publish(&c.f, SNAPSHOT_USER, NULL, 1, 0x11));
                View v = view_of(s);
                strcpy(id, s->id);
                failing_fsync_set(&c.disk, nth);
                r = fixture_wait(&c.f, snapshot_remove(s, on_fixture_done, &c.f));
                assert_true(r == 0 || r == -EIO);
                assert_eq(s->kind, r == 0 ? SNAPSHOT_LAYER : SNAPSHOT_USER);

                fixture_load(&c.f);
                snapshot_store_clean(c.f.store);
                s = snapshot_store_find(c.f.store, id);
                assert_true(r == 0 || (s && s->kind == SNAPSHOT_USER && same_view(s, &v)));
                assert_true(nth < CALLS_MAX);
        }
        assert_true(nth > 2);
}

/* Whatever merged files there are now, those that are named are. */
TEST(layers_that_can_not_be_merged_stay) {
        unsigned nth = 1;
        int r = -EIO;

        for (; r < 0; nth++) {
                _cleanup_case_ Case c;
                char id[21];

                case_init(&c);
                Snapshot *t = made_durable(&c.f, fixture_publish(&c.f, SNAPSHOT_TEMPLATE, NULL, 0, 0x10));
                Snapshot *a = made_durable(&c.f, fixture_publish(&c.f, SNAPSHOT_USER, t, 1, 0x11));
                Snapshot *s = made_durable(&c.f, fixture_publish(&c.f, SNAPSHOT_USER, a, 2, 0x22));
                View v = view_of(s);
                strcpy(id, s->id);
                failing_fsync_set(&c.disk, nth);
                r = fixture_wait(&c.f, snapshot_flatten(s, on_fixture_done, &c.f));
                failing_fsync_set(&c.disk, 0);
                assert_true(r == -EIO || r == 0);
                assert_true(same_view(s, &v));

                fixture_load(&c.f);
                snapshot_store_clean(c.f.store);
                s = snapshot_store_find(c.f.store, id);
                assert_true(s && same_view(s, &v));
                assert_true(nth < CALLS_MAX);
        }
        assert_true(nth > 4);
}
