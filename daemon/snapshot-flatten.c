/* SPDX-License-Identifier: Apache-2.0 */

/* Flattening: the layers of a snapshot down to its template's become one layer of its own.
 *
 * For memory, then for the disk: an empty file with the next free number, merged by cube-stored, fsynced. Then
 * snapshot.json names both files and the new parents, by one rename. A crash before it leaves files that
 * nobody knows, one behind it the old files; snapshot_store_clean() removes either. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "daemon/snapshot-private.h"

/* Numbers of files of attempts that failed, which are there until the next start. */
#define NUMBER_TRIES_MAX 64U

typedef struct Waiter {
        SnapshotDone done;
        void *userdata;
} Waiter;

/* One file, with which the layers of one of the chains are replaced. */
typedef struct Part {
        bool merged;
        int fd;
        SnapshotFileInfo file;
        Snapshot *parent;        /* what it will stand on, then what it stood on; used; may be NULL */
} Part;

struct SnapshotFlatten {
        Snapshot *snapshot;
        SnapshotFileKind at;
        Part parts[_SNAPSHOT_FILE_MAX];
        Snapshot *old_parents[_SNAPSHOT_FILE_MAX];
        uint32_t old_numbers[_SNAPSHOT_FILE_MAX];
        Waiter *waiters;
        size_t n_waiters;
};

static void go_on(SnapshotFlatten *f);

static void remove_file(Snapshot *s, SnapshotFileKind file, uint32_t number) {
        char name[SNAPSHOT_FILE_NAME_MAX];

        snapshot_file_name(name, file, number);
        _cleanup_free_ char *path = snapshot_client_path(s->store, s->priv->dir, name);
        if (path)
                (void) store_client_remove(s->store->client, path, NULL, NULL);
}

static void flatten_free(SnapshotFlatten *f) {
        for (int i = 0; i < _SNAPSHOT_FILE_MAX; i++) {
                safe_close(f->parts[i].fd);
                if (f->parts[i].parent)
                        snapshot_release(f->parts[i].parent);
        }
        free(f->waiters);
        free(f);
}

static void finish(SnapshotFlatten *f, int error) {
        Snapshot *s = f->snapshot;

        s->priv->flatten = NULL;
        for (int i = 0; error < 0 && i < _SNAPSHOT_FILE_MAX; i++)
                if (f->parts[i].merged)
                        remove_file(s, (SnapshotFileKind) i, f->parts[i].file.number);
        for (size_t i = 0; i < f->n_waiters; i++)
                if (f->waiters[i].done)
                        f->waiters[i].done(s, error, f->waiters[i].userdata);
        flatten_free(f);
        snapshot_release(s);
}

/* One of the chains, lowest first; the first n_beneath of them (the template's) stay beneath the merged file. */
typedef struct Chain {
        Snapshot *layers[SNAPSHOT_CHAIN_MAX];
        size_t n, n_beneath;
} Chain;

static void get_chain(Snapshot *s, SnapshotFileKind file, Chain *ret) {
        int n = file == SNAPSHOT_FILE_MEMORY ? snapshot_memory_chain(s, ret->layers, ELEMENTSOF(ret->layers))
                                             : snapshot_disk_chain(s, ret->layers, ELEMENTSOF(ret->layers));

        assert(n >= 0);
        ret->n = (size_t) n;
        ret->n_beneath = n > 0 && ret->layers[0]->kind == SNAPSHOT_TEMPLATE;
}

static int create_aside(SnapshotFlatten *f) {
        Part *p = &f->parts[f->at];
        int r = -EEXIST;

        p->file.number = f->snapshot->priv->files[f->at].number;
        for (unsigned i = 0; r == -EEXIST && i < NUMBER_TRIES_MAX; i++) {
                p->file.number = p->file.number % (UINT32_MAX - 1) + 1;
                r = snapshot_create_numbered(f->snapshot, f->at, p->file.number, &p->fd);
        }
        p->merged = r >= 0;
        return r;
}

static void on_synced(int error, void *userdata) {
        SnapshotFlatten *f = userdata;

        if (error < 0)
                return finish(f, error);
        f->at++;
        go_on(f);
}

/* What was merged has to be what this snapshot's memory will be loaded as. */
static int check_part(const SnapshotFlatten *f) {
        const Part *p = &f->parts[f->at];
        uint8_t below[SNAPSHOT_ID_BYTES], none[SNAPSHOT_ID_BYTES] = {};

        if (f->at != SNAPSHOT_FILE_MEMORY)
                return 0;
        int r = snapshot_check_memory(p->fd, f->snapshot->uuid, below);
        if (r < 0)
                return r;
        return memcmp(below, p->parent ? p->parent->uuid : none, sizeof(below)) == 0 ? 0 : -EBADMSG;
}

static void on_merged(int error, void *userdata) {
        SnapshotFlatten *f = userdata;
        Part *p = &f->parts[f->at];
        struct stat st;

        if (error >= 0 && fstat(p->fd, &st) < 0)
                error = -errno;
        if (error >= 0) {
                p->file.bytes = (uint64_t) st.st_size;
                error = check_part(f);
        }
        if (error >= 0)
                error = store_client_sync(f->snapshot->store->client, p->fd, on_synced, f);
        if (error < 0)
                finish(f, error);
}

static int merge(SnapshotFlatten *f, const Chain *c) {
        StoreClient *client = f->snapshot->store->client;
        int fds[SNAPSHOT_CHAIN_MAX], r = 0;
        Part *p = &f->parts[f->at];
        size_t n_fds = 0;

        while (r >= 0 && n_fds < c->n) {
                r = c->layers[n_fds]->priv->damaged ? -EIO : snapshot_open_file(c->layers[n_fds], f->at, &fds[n_fds]);
                if (r >= 0)
                        n_fds++;
        }
        if (r >= 0)
                r = create_aside(f);
        if (r >= 0 && f->at == SNAPSHOT_FILE_MEMORY)
                r = store_client_merge_memory(client, fds, c->n, c->n_beneath, p->fd, on_merged, f);
        else if (r >= 0)
                r = store_client_merge_disk(client, fds + c->n_beneath, c->n - c->n_beneath, p->fd, on_merged, f);
        close_many(fds, n_fds);
        return r;
}

/* Only the fields: uses are settled in on_committed(). */
static void change(Snapshot *s, void *userdata) {
        SnapshotFlatten *f = userdata;

        for (int i = 0; i < _SNAPSHOT_FILE_MAX; i++)
                if (f->parts[i].merged)
                        s->priv->files[i] = f->parts[i].file;
        if (f->parts[SNAPSHOT_FILE_MEMORY].merged)
                s->memory_parent = f->parts[SNAPSHOT_FILE_MEMORY].parent;
        if (f->parts[SNAPSHOT_FILE_DISK].merged)
                s->parent = f->parts[SNAPSHOT_FILE_DISK].parent;
}

static void on_committed(Snapshot *s, int error, void *userdata) {
        SnapshotFlatten *f = userdata;

        for (int i = 0; error >= 0 && i < _SNAPSHOT_FILE_MAX; i++)
                if (f->parts[i].merged) {
                        f->parts[i].parent = f->old_parents[i];
                        remove_file(s, (SnapshotFileKind) i, f->old_numbers[i]);
                }
        finish(f, error);
}

static int commit(SnapshotFlatten *f) {
        Snapshot *s = f->snapshot;

        f->old_parents[SNAPSHOT_FILE_MEMORY] = s->memory_parent;
        f->old_parents[SNAPSHOT_FILE_DISK] = s->parent;
        for (int i = 0; i < _SNAPSHOT_FILE_MAX; i++)
                f->old_numbers[i] = s->priv->files[i].number;
        return snapshot_commit(s, change, on_committed, f);
}

static void on_nothing(int error, void *userdata) {
        finish(userdata, error);
}

/* The next file of which there is something to merge, or the end. */
static int next(SnapshotFlatten *f) {
        Snapshot *s = f->snapshot;
        Chain c;

        for (; f->at < _SNAPSHOT_FILE_MAX; f->at++) {
                if (f->at != SNAPSHOT_FILE_MEMORY && f->at != SNAPSHOT_FILE_DISK)
                        continue;
                get_chain(s, f->at, &c);
                if (c.n - c.n_beneath < 2)
                        continue;
                if (c.n_beneath > 0) {
                        f->parts[f->at].parent = c.layers[0];
                        snapshot_use(c.layers[0]);
                }
                return merge(f, &c);
        }
        if (f->parts[SNAPSHOT_FILE_MEMORY].merged || f->parts[SNAPSHOT_FILE_DISK].merged)
                return commit(f);
        /* An answer, but not before the call returns. */
        return store_client_sync(s->store->client, s->store->root_fd, on_nothing, f);
}

static void go_on(SnapshotFlatten *f) {
        int r = next(f);

        if (r < 0)
                finish(f, r);
}

static int add_waiter(SnapshotFlatten *f, SnapshotDone done, void *userdata) {
        Waiter *list = reallocarray(f->waiters, f->n_waiters + 1, sizeof(*list));

        if (!list)
                return -ENOMEM;
        f->waiters = list;
        list[f->n_waiters++] = (Waiter) { done, userdata };
        return 0;
}

static int start(Snapshot *s, SnapshotDone done, void *userdata) {
        SnapshotFlatten *f = new0(SnapshotFlatten, 1);

        if (!f)
                return -ENOMEM;
        f->snapshot = s;
        for (int i = 0; i < _SNAPSHOT_FILE_MAX; i++)
                f->parts[i].fd = -EBADF;
        s->priv->flatten = f;
        snapshot_use(s);
        int r = next(f);
        if (r >= 0)
                r = add_waiter(f, done, userdata);
        else
                finish(f, r);
        return r;
}

int snapshot_flatten(Snapshot *s, SnapshotDone done, void *userdata) {
        return s->priv->flatten ? add_waiter(s->priv->flatten, done, userdata) : start(s, done, userdata);
}
