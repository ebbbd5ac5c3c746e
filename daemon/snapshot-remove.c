/* SPDX-License-Identifier: Apache-2.0 */

/* How snapshots go: as a whole, or their state only while others need their layers. */

#include <fcntl.h>
#include <stdio.h>

#include "daemon/snapshot-private.h"

/* Somebody who waits until files are gone. */
typedef struct Removal {
        Snapshot *snapshot;
        SnapshotDone done;
        void *userdata;
} Removal;

static void removal_finish(Removal *v, int error) {
        if (v->done)
                v->done(v->snapshot, error, v->userdata);
        free(v);
}

/* From here no start of cubed finds it any more, however far the deletion gets. */
static int rename_away(Snapshot *s) {
        char name[sizeof(s->priv->dir)];

        (void) snprintf(name, sizeof(name), SNAPSHOT_GONE_PREFIX "%s", s->id);
        if (renameat(s->store->root_fd, s->priv->dir, s->store->root_fd, name) < 0)
                return -errno;
        strcpy(s->priv->dir, name);
        return 0;
}

static void rename_back(Snapshot *s) {
        if (renameat(s->store->root_fd, s->priv->dir, s->store->root_fd, s->id) >= 0)
                strcpy(s->priv->dir, s->id);
}

static void leave_store(Snapshot *s) {
        SnapshotStore *store = s->store;

        snapshot_store_detach(s);
        if (store->removed)
                store->removed(s, store->userdata);
        snapshot_release_parents(s);
}

void snapshot_discard_files(Snapshot *s) {
        if (rename_away(s) < 0)
                return;
        _cleanup_free_ char *path = snapshot_client_path(s->store, s->priv->dir, NULL);
        if (path)
                (void) store_client_remove(s->store->client, path, NULL, NULL);
}

void snapshot_drop(Snapshot *s) {
        assert(s->n_users == 0);

        snapshot_discard_files(s);
        leave_store(s);
        snapshot_free_memory(s);
}

static void on_gone(int error, void *userdata) {
        Removal *v = userdata;
        Snapshot *s = v->snapshot;

        /* The next cube-stored finds what is left of it. */
        removal_finish(v, error == -ECONNRESET ? 0 : error);
        snapshot_free_memory(s);
}

static int remove_all(Snapshot *s, Removal *v) {
        int r = rename_away(s);
        if (r < 0)
                return r;
        _cleanup_free_ char *path = snapshot_client_path(s->store, s->priv->dir, NULL);
        r = path ? store_client_remove(s->store->client, path, on_gone, v) : -ENOMEM;
        if (r < 0) {
                rename_back(s);
                return r;
        }
        leave_store(s);
        return 0;
}

static void become_layer(Snapshot *s, void *userdata) {
        s->kind = SNAPSHOT_LAYER;
}

static void on_state_gone(int error, void *userdata) {
        Removal *v = userdata;
        Snapshot *s = v->snapshot;

        /* A state file that nobody knows any more goes at the next start. */
        removal_finish(v, 0);
        snapshot_release(s);
}

static void on_layer(Snapshot *s, int error, void *userdata) {
        char name[SNAPSHOT_FILE_NAME_MAX];

        if (error >= 0 && s->has_memory) {
                snapshot_file_name(name, SNAPSHOT_FILE_STATE, s->priv->files[SNAPSHOT_FILE_STATE].number);
                _cleanup_free_ char *path = snapshot_client_path(s->store, s->priv->dir, name);
                if (path && store_client_remove(s->store->client, path, on_state_gone, userdata) >= 0)
                        return;
        }
        removal_finish(userdata, error);
        snapshot_release(s);
}

static int remove_state(Snapshot *s, Removal *v) {
        snapshot_use(s);
        int r = snapshot_commit(s, become_layer, on_layer, v);
        if (r < 0)
                snapshot_release(s);
        return r;
}

int snapshot_remove(Snapshot *s, SnapshotDone done, void *userdata) {
        if (s->kind == SNAPSHOT_TEMPLATE && s->n_users > 0)
                return -EBUSY;
        if (s->kind == SNAPSHOT_USER && snapshot_next_above(s, NULL))
                return -EBUSY;

        Removal *v = new0(Removal, 1);
        if (!v)
                return -ENOMEM;
        *v = (Removal) { s, done, userdata };
        int r = s->n_users > 0 ? remove_state(s, v) : remove_all(s, v);
        if (r < 0)
                free(v);
        return r;
}
