/* SPDX-License-Identifier: Apache-2.0 */

/* Getting snapshots onto the disk: changes of snapshot.json, and the fsync of what is new. All of it is done by
 * cube-stored, step by step, each begun by the answer to the one before. */

#include "daemon/snapshot-private.h"

/* Changes */

struct SnapshotCommit {
        SnapshotChange change;
        SnapshotCommitted done;
        void *userdata;
        Snapshot *snapshot;
        bool started;
        SnapshotCommit *next;
};

static void run_commits(Snapshot *s);

static void finish(SnapshotCommit *c, int error) {
        Snapshot *s = c->snapshot;

        assert(s->priv->commits == c);
        s->priv->commits = c->next;
        snapshot_use(s);
        if (error >= 0) {
                c->change(s, c->userdata);
                snapshot_measure(s);
                if (s->store->changed)
                        s->store->changed(s, s->store->userdata);
        }
        c->done(s, error, c->userdata);
        free(c);
        run_commits(s);
        snapshot_release(s);
}

static void on_renamed(int error, void *userdata) {
        finish(userdata, error);
}

static void on_json_synced(int error, void *userdata) {
        SnapshotCommit *c = userdata;
        Snapshot *s = c->snapshot;

        if (error >= 0) {
                _cleanup_free_ char *from = snapshot_client_path(s->store, s->priv->dir, SNAPSHOT_JSON_NEW);
                _cleanup_free_ char *to = snapshot_client_path(s->store, s->priv->dir, SNAPSHOT_JSON);
                error = from && to ? store_client_rename(s->store->client, from, to, on_renamed, c) : -ENOMEM;
        }
        if (error < 0)
                finish(c, error);
}

static int start(SnapshotCommit *c) {
        Snapshot next = *c->snapshot;
        SnapshotPrivate next_priv = *c->snapshot->priv;
        _cleanup_close_ int fd = -EBADF;

        c->started = true;
        next.priv = &next_priv;
        c->change(&next, c->userdata);
        int r = snapshot_write_json(&next, SNAPSHOT_JSON_NEW, &fd);
        return r < 0 ? r : store_client_sync(c->snapshot->store->client, fd, on_json_synced, c);
}

/* Who heard of the last one may have begun the next one himself. */
static void run_commits(Snapshot *s) {
        SnapshotCommit *c = s->priv->commits;
        int r;

        if (c && !c->started && (r = start(c)) < 0)
                finish(c, r);
}

int snapshot_commit(Snapshot *s, SnapshotChange change, SnapshotCommitted done, void *userdata) {
        SnapshotCommit *c = new0(SnapshotCommit, 1), **end = &s->priv->commits;

        if (!c)
                return -ENOMEM;
        *c = (SnapshotCommit) { .change = change, .done = done, .userdata = userdata, .snapshot = s };
        while (*end)
                end = &(*end)->next;
        *end = c;
        if (c != s->priv->commits)
                return 0;
        int r = start(c);
        if (r < 0) {
                s->priv->commits = NULL;
                free(c);
        }
        return r;
}

/* Sync */

typedef struct Sync {
        Snapshot *snapshot;
        SnapshotKind kind;       /* that it gets once it is durable; _SNAPSHOT_KIND_INVALID: keeps its own */
        Snapshot *at;            /* the one whose turn it is: snapshot, or what it stands on; used */
        int step;                /* a SnapshotFileKind, or what follows them */
        SnapshotDone done;
        void *userdata;
} Sync;

/* snapshot.json comes last: nothing behind it can fail. */
enum { STEP_DIRECTORY = _SNAPSHOT_FILE_MAX, STEP_ROOT, STEP_JSON };

static void sync_go_on(Sync *y);

static Snapshot *first_volatile(Snapshot *const *list, int n) {
        for (int i = 0; i < n; i++)
                if (!list[i]->durable)
                        return list[i];
        return NULL;
}

/* One that is not durable yet, of all that s stands on; s itself last. */
static Snapshot *find_volatile(Snapshot *s) {
        Snapshot *list[SNAPSHOT_CHAIN_MAX];

        int n = snapshot_disk_chain(s, list, ELEMENTSOF(list));
        Snapshot *t = first_volatile(list, n - 1);
        if (t)
                return t;
        n = snapshot_memory_chain(s, list, ELEMENTSOF(list));
        return first_volatile(list, n - 1) ?: (s->durable ? NULL : s);
}

static void sync_free(Sync *y) {
        if (y->at)
                snapshot_release(y->at);
        snapshot_release(y->snapshot);
        free(y);
}

static void sync_finish(Sync *y, int error) {
        if (y->done)
                y->done(y->snapshot, error, y->userdata);
        sync_free(y);
}

/* The kernel tells once that what was written did not get to the disk; asked again it says that all is well. */
static void note_damage(Sync *y, int error) {
        if (error != -ECONNRESET && error != -ENOTCONN)
                y->at->priv->damaged = true;
}

static void on_synced(int error, void *userdata) {
        Sync *y = userdata;

        if (error < 0) {
                note_damage(y, error);
                return sync_finish(y, error);
        }
        y->step++;
        sync_go_on(y);
}

static void on_root_synced(int error, void *userdata) {
        sync_finish(userdata, error);
}

static void become_durable(Snapshot *s, void *userdata) {
        Sync *y = userdata;

        s->durable = true;
        if (y->at == y->snapshot && y->kind >= 0)
                s->kind = y->kind;
}

static void on_durable(Snapshot *s, int error, void *userdata) {
        Sync *y = userdata;

        if (error < 0 || s == y->snapshot)
                return sync_finish(y, error);
        snapshot_release(TAKE_PTR(y->at));
        sync_go_on(y);
}

/* Its files, then the directories that they and it are in, then snapshot.json that says so. */
static int sync_one(Sync *y) {
        StoreClient *client = y->at->store->client;
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (y->at->priv->damaged)
                return -EIO;
        while (y->step < STEP_DIRECTORY && !snapshot_has_file(y->at, (SnapshotFileKind) y->step))
                y->step++;
        if (y->step == STEP_JSON)
                return snapshot_commit(y->at, become_durable, on_durable, y);
        if (y->step == STEP_ROOT)
                return store_client_sync(client, y->at->store->root_fd, on_synced, y);
        r = y->step == STEP_DIRECTORY ? snapshot_open_directory(y->at, &fd)
                                      : snapshot_open_file(y->at, (SnapshotFileKind) y->step, &fd);
        return r < 0 ? r : store_client_sync(client, fd, on_synced, y);
}

/* NULL: there is nothing to be done. */
static Snapshot *find_next(const Sync *y) {
        Snapshot *s = y->snapshot;

        return find_volatile(s) ?: (y->kind >= 0 && s->kind != y->kind ? s : NULL);
}

static int sync_next(Sync *y) {
        if (!y->at) {
                y->at = find_next(y);
                y->step = 0;
                if (!y->at)
                        return store_client_sync(y->snapshot->store->client, y->snapshot->store->root_fd, on_root_synced, y);
                snapshot_use(y->at);
        }
        return sync_one(y);
}

static void sync_go_on(Sync *y) {
        int r = sync_next(y);

        if (r < 0)
                sync_finish(y, r);
}

int snapshot_sync_as(Snapshot *s, SnapshotKind kind, SnapshotDone done, void *userdata) {
        Sync *y = new0(Sync, 1);

        if (!y)
                return -ENOMEM;
        *y = (Sync) { .snapshot = s, .kind = kind, .done = done, .userdata = userdata };
        snapshot_use(s);
        int r = sync_next(y);
        if (r < 0)
                sync_free(y);
        return r;
}

int snapshot_sync(Snapshot *s, SnapshotDone done, void *userdata) {
        return snapshot_sync_as(s, _SNAPSHOT_KIND_INVALID, done, userdata);
}
