/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <systemd/sd-id128.h>

#include "base/clock.h"
#include "daemon/id.h"
#include "daemon/snapshot-private.h"

static const char *const kind_table[_SNAPSHOT_KIND_MAX] = {
        [SNAPSHOT_TEMPLATE] = "template",
        [SNAPSHOT_USER] = "user",
        [SNAPSHOT_CHECKPOINT] = "checkpoint",
        [SNAPSHOT_PAUSE] = "pause",
        [SNAPSHOT_FORK] = "fork",
        [SNAPSHOT_LAYER] = "layer",
};

const char *snapshot_kind_to_string(SnapshotKind k) {
        return k >= 0 && k < _SNAPSHOT_KIND_MAX ? kind_table[k] : NULL;
}

SnapshotKind snapshot_kind_from_string(const char *s) {
        for (int i = 0; s && i < _SNAPSHOT_KIND_MAX; i++)
                if (streq(s, kind_table[i]))
                        return (SnapshotKind) i;
        return _SNAPSHOT_KIND_INVALID;
}

bool snapshot_goes_by_itself(const Snapshot *s) {
        return s->kind == SNAPSHOT_FORK || s->kind == SNAPSHOT_PAUSE || s->kind == SNAPSHOT_LAYER;
}

Snapshot *snapshot_alloc(void) {
        Snapshot *s = new0(Snapshot, 1);

        if (!s)
                return NULL;
        s->priv = new0(SnapshotPrivate, 1);
        if (!s->priv)
                free(TAKE_PTR(s));
        return s;
}

Snapshot *snapshot_free_memory(Snapshot *s) {
        if (!s)
                return NULL;
        free(s->priv->parent_id);
        free(s->priv->memory_parent_id);
        free(s->priv);
        free(s->name);
        free(s->sandbox_id);
        free(s->template_id);
        free(s->template_name);
        free(s);
        return NULL;
}

int snapshot_new(SnapshotStore *store, SnapshotKind kind, Snapshot **ret) {
        _cleanup_(snapshot_free_memoryp) Snapshot *s = snapshot_alloc();
        sd_id128_t boot;

        if (!s)
                return -ENOMEM;
        int r = sd_id128_get_boot(&boot);
        if (r < 0)
                return r;
        (void) sd_id128_to_string(boot, s->priv->boot);
        s->created_usec = wall_usec();
        s->kind = kind;
        s->store = store;
        id_random(s->id);
        (void) snprintf(s->priv->dir, sizeof(s->priv->dir), SNAPSHOT_NEW_PREFIX "%s", s->id);
        if (mkdirat(store->root_fd, s->priv->dir, 0700) < 0)
                return -errno;
        *ret = TAKE_PTR(s);
        return 0;
}

void snapshot_release_parents(Snapshot *s) {
        Snapshot *parent = TAKE_PTR(s->parent), *memory_parent = TAKE_PTR(s->memory_parent);

        if (parent)
                snapshot_release(parent);
        if (memory_parent)
                snapshot_release(memory_parent);
}

Snapshot *snapshot_free(Snapshot *s) {
        if (!s)
                return NULL;
        assert(!s->priv->published);

        snapshot_discard_files(s);
        snapshot_release_parents(s);
        return snapshot_free_memory(s);
}

/* Layers, counted from s down; -E2BIG stands for a loop as well. */
static int chain(Snapshot *s, bool memory, Snapshot **ret, size_t n) {
        size_t k = 0;

        if (memory && !s->has_memory)
                return 0;
        for (Snapshot *p = s; p; p = memory ? p->memory_parent : p->parent)
                if (k++ == n)
                        return -E2BIG;
        for (size_t i = k; i > 0; i--) {
                ret[i - 1] = s;
                s = memory ? s->memory_parent : s->parent;
        }
        return (int) k;
}

int snapshot_memory_chain(Snapshot *s, Snapshot **ret, size_t n) {
        return chain(s, true, ret, n);
}

int snapshot_disk_chain(Snapshot *s, Snapshot **ret, size_t n) {
        return chain(s, false, ret, n);
}

size_t snapshot_depth(Snapshot *s) {
        Snapshot *list[SNAPSHOT_CHAIN_MAX];
        int memory = snapshot_memory_chain(s, list, ELEMENTSOF(list));
        int disk = snapshot_disk_chain(s, list, ELEMENTSOF(list));

        assert(memory >= 0 && disk >= 0);
        return (size_t) MAX(memory, disk);
}

bool snapshot_stands_on(const Snapshot *s, const Snapshot *other) {
        for (const Snapshot *p = s->parent; p; p = p->parent)
                if (p == other)
                        return true;
        for (const Snapshot *p = s->memory_parent; p; p = p->memory_parent)
                if (p == other)
                        return true;
        return false;
}

int snapshot_link_parents(Snapshot *s, Snapshot *parent, Snapshot *memory_parent) {
        Snapshot *list[SNAPSHOT_CHAIN_MAX];

        if (memory_parent && !memory_parent->has_memory)
                return -EINVAL;
        /* Its own layer comes on top. */
        if ((parent && snapshot_disk_chain(parent, list, VMM_DISK_LAYERS_MAX - 1) < 0) ||
            (memory_parent && snapshot_memory_chain(memory_parent, list, SNAPSHOT_LAYERS_MAX - 1) < 0))
                return -E2BIG;

        if (parent)
                snapshot_use(parent);
        if (memory_parent)
                snapshot_use(memory_parent);
        snapshot_release_parents(s);
        s->parent = parent;
        s->memory_parent = memory_parent;
        return 0;
}

int snapshot_set_parents(Snapshot *s, Snapshot *parent, Snapshot *memory_parent) {
        return s->priv->published ? -EROFS : snapshot_link_parents(s, parent, memory_parent);
}

int snapshot_publish(Snapshot *s) {
        SnapshotStore *store = s->store;

        if (s->priv->published)
                return -EALREADY;
        int r = snapshot_check_files(s);
        if (r >= 0)
                r = snapshot_check_json(s);
        if (r < 0)
                return r;
        if (!snapshot_memory_fits(s, s->memory_parent))
                return -EBADMSG;
        r = snapshot_write_json(s, SNAPSHOT_JSON, NULL);
        if (r >= 0)
                r = snapshot_store_attach(store, s);
        if (r < 0)
                return r;
        if (renameat2(store->root_fd, s->priv->dir, store->root_fd, s->id, RENAME_NOREPLACE) < 0) {
                r = -errno;
                snapshot_store_detach(s);
                return r;
        }
        strcpy(s->priv->dir, s->id);
        s->priv->published = true;
        s->n_users = 1;
        snapshot_measure(s);
        if (store->added)
                store->added(s, store->userdata);
        return 0;
}

void snapshot_use(Snapshot *s) {
        s->n_users++;
}

void snapshot_release(Snapshot *s) {
        assert(s->n_users > 0);
        s->n_users--;
        if (s->n_users == 0 && snapshot_goes_by_itself(s) && !s->store->starting && !s->store->stopping)
                snapshot_drop(s);
}
