/* SPDX-License-Identifier: Apache-2.0 */

/* The list of snapshots, and how it comes about when cubed starts: each directory by itself first, then
 * what stands on what. */

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <systemd/sd-id128.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/snapshot-private.h"

#define WARNINGS_MAX 64U

static inline void closedirp(DIR **d) {
        if (*d)
                (void) closedir(*d);
}

_printf_(2, 3) static void warn(SnapshotStore *store, const char *format, ...) {
        char *text = NULL;
        va_list ap;

        if (store->n_warnings == WARNINGS_MAX)
                return;
        va_start(ap, format);
        if (vasprintf(&text, format, ap) >= 0)
                store->warnings[store->n_warnings++] = text;
        va_end(ap);
}

Snapshot *snapshot_store_find(SnapshotStore *store, const char *id) {
        for (size_t i = 0; i < store->n_snapshots; i++)
                if (streq(store->snapshots[i]->id, id))
                        return store->snapshots[i];
        return NULL;
}

Snapshot *snapshot_store_find_template(SnapshotStore *store, const char *template_id) {
        for (size_t i = 0; i < store->n_snapshots; i++) {
                Snapshot *s = store->snapshots[i];
                if (s->kind == SNAPSHOT_TEMPLATE && streq(s->template_id, template_id))
                        return s;
        }
        return NULL;
}

Snapshot *snapshot_next_above(const Snapshot *s, const Snapshot *after) {
        SnapshotStore *store = s->store;
        size_t i = 0;

        if (after)
                while (i < store->n_snapshots && store->snapshots[i++] != after)
                        ;
        for (; i < store->n_snapshots; i++) {
                Snapshot *t = store->snapshots[i];
                bool others = !t->sandbox_id || !s->sandbox_id || !streq(t->sandbox_id, s->sandbox_id);

                if (t->kind == SNAPSHOT_PAUSE && t->forgotten)
                        continue;
                if ((t->kind == SNAPSHOT_USER || ((t->kind == SNAPSHOT_CHECKPOINT || t->kind == SNAPSHOT_PAUSE) && others)) &&
                    snapshot_stands_on(t, s))
                        return t;
        }
        return NULL;
}

int snapshot_store_attach(SnapshotStore *store, Snapshot *s) {
        Snapshot **list = reallocarray(store->snapshots, store->n_snapshots + 1, sizeof(*list));

        if (!list)
                return -ENOMEM;
        store->snapshots = list;
        store->snapshots[store->n_snapshots++] = s;
        return 0;
}

void snapshot_store_detach(Snapshot *s) {
        SnapshotStore *store = s->store;

        for (size_t i = 0; i < store->n_snapshots; i++)
                if (store->snapshots[i] == s) {
                        store->snapshots[i] = store->snapshots[--store->n_snapshots];
                        return;
                }
}

static int read_json(int dir_fd, Snapshot *s, const char **ret_reason) {
        _cleanup_free_ char *text = NULL;
        struct stat st;
        size_t size;

        /* A pipe would be waited for. */
        if (fstatat(dir_fd, SNAPSHOT_JSON, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EBADMSG;
        int r = read_file(dir_fd, SNAPSHOT_JSON, SNAPSHOT_JSON_MAX, &text, &size);
        return r < 0 ? r : snapshot_parse(text, size, s, ret_reason);
}

/* -EOWNERDEAD: the host went down before it had reached the disk. */
static int load(SnapshotStore *store, const char *id, const char *boot, Snapshot **ret, const char **ret_reason) {
        _cleanup_(snapshot_free_memoryp) Snapshot *s = snapshot_alloc();
        _cleanup_close_ int dir_fd = -EBADF;

        *ret_reason = "it can't be read";
        if (!s)
                return -ENOMEM;
        s->store = store;
        strcpy(s->priv->dir, id);
        s->priv->published = true;
        int r = snapshot_open_directory(s, &dir_fd);
        if (r >= 0)
                r = read_json(dir_fd, s, ret_reason);
        if (r < 0)
                return r;

        *ret_reason = "its " SNAPSHOT_JSON " is another's";
        if (!streq(s->id, id))
                return -EBADMSG;
        *ret_reason = "the host went down before it had reached the disk";
        if (!s->durable && !streq(s->priv->boot, boot))
                return -EOWNERDEAD;
        *ret_reason = "a file is missing, not as large as " SNAPSHOT_JSON " says, or not of this snapshot";
        r = snapshot_check_files(s);
        if (r < 0)
                return r;
        snapshot_measure(s);
        *ret = TAKE_PTR(s);
        return 0;
}

static int add_lost(SnapshotStore *store, const char *id) {
        char **list = reallocarray(store->lost, store->n_lost + 1, sizeof(*list));

        if (!list)
                return -ENOMEM;
        store->lost = list;
        list[store->n_lost] = strdup(id);
        return list[store->n_lost] ? (int) ++store->n_lost : -ENOMEM;
}

static int load_one(SnapshotStore *store, const char *name, const char *boot) {
        _cleanup_(snapshot_free_memoryp) Snapshot *s = NULL;
        const char *reason;

        if (!sandbox_id_valid(name)) {
                warn(store, "%s: not a snapshot", name);
                return 0;
        }
        int r = load(store, name, boot, &s, &reason);
        if (r == -EOWNERDEAD) {
                warn(store, "snapshot %s: %s", name, reason);
                return add_lost(store, name);
        }
        if (r < 0 && r != -ENOMEM) {
                warn(store, "snapshot %s: %s (%s)", name, reason, strerror(-r));
                return 0;
        }
        if (r >= 0)
                r = snapshot_store_attach(store, s);
        if (r >= 0)
                (void) TAKE_PTR(s);
        return r;
}

static int open_list(int parent_fd, const char *path, DIR **ret) {
        int fd = openat(parent_fd, path, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC), r;

        if (fd < 0)
                return -errno;
        *ret = fdopendir(fd);
        if (*ret)
                return 0;
        r = -errno;
        safe_close(fd);
        return r;
}

static int load_all(SnapshotStore *store) {
        _cleanup_(closedirp) DIR *d = NULL;
        char boot[SNAPSHOT_BOOT_MAX];
        sd_id128_t id;
        struct dirent *de;

        int r = sd_id128_get_boot(&id);
        if (r < 0)
                return r;
        (void) sd_id128_to_string(id, boot);
        r = open_list(store->root_fd, ".", &d);
        if (r < 0)
                return r;
        while ((errno = 0, de = readdir(d))) {
                if (de->d_name[0] == '.')
                        continue;
                r = load_one(store, de->d_name, boot);
                if (r < 0)
                        return r;
        }
        return errno > 0 ? -errno : 0;
}

/* Where a parent is to be found; NULL with an id: not among the first n. */
static Snapshot *find_settled(const SnapshotStore *store, size_t n, const char *id) {
        for (size_t i = 0; id && i < n; i++)
                if (streq(store->snapshots[i]->id, id))
                        return store->snapshots[i];
        return NULL;
}

/* Links s to parents among the first n, which are settled. NULL, or what is wrong. */
static const char *settle(SnapshotStore *store, size_t n, Snapshot *s) {
        SnapshotPrivate *p = s->priv;
        Snapshot *parent = find_settled(store, n, p->parent_id);
        Snapshot *memory_parent = find_settled(store, n, p->memory_parent_id);

        if ((p->parent_id && !parent) || (p->memory_parent_id && !memory_parent))
                return "what it stands on is not there, was not loaded, or stands on it";
        if ((parent && !streq(parent->template_id, s->template_id)) ||
            (memory_parent && !streq(memory_parent->template_id, s->template_id)))
                return "it stands on a snapshot of another template";
        if (!snapshot_memory_fits(s, memory_parent))
                return "its memory does not stand on that of the snapshot below";
        int r = snapshot_link_parents(s, parent, memory_parent);
        return r == -E2BIG ? "it stands on more layers than a machine can have" :
                r < 0      ? "it stands on memory that is not there" :
                             NULL;
}

/* Those that are settled are moved to the front, round by round, until nothing moves; chains are as long as a
 * machine has layers, and so many rounds there are. What is left stands on nothing, or in a circle. */
static void settle_all(SnapshotStore *store) {
        size_t n = 0, before;

        do {
                before = n;
                for (size_t i = n; i < store->n_snapshots; i++) {
                        Snapshot *s = store->snapshots[i];

                        if (settle(store, n, s))
                                continue;
                        store->snapshots[i] = store->snapshots[n];
                        store->snapshots[n++] = s;
                }
        } while (n > before);

        while (store->n_snapshots > n) {
                Snapshot *s = store->snapshots[store->n_snapshots - 1];

                warn(store, "snapshot %s: %s", s->id, settle(store, n, s));
                store->n_snapshots--;
                snapshot_free_memory(s);
        }
        for (size_t i = 0; i < n; i++) {
                free(TAKE_PTR(store->snapshots[i]->priv->parent_id));
                free(TAKE_PTR(store->snapshots[i]->priv->memory_parent_id));
        }
}

int snapshot_store_load(SnapshotStore **ret, const char *root, StoreClient *client) {
        _cleanup_(snapshot_store_freep) SnapshotStore *store = new0(SnapshotStore, 1);

        if (!store)
                return -ENOMEM;
        store->root_fd = -EBADF;
        store->client = client;
        store->root = strdup(root);
        store->warnings = new0(char *, WARNINGS_MAX);
        if (!store->root || !store->warnings)
                return -ENOMEM;

        if (mkdir(root, 0700) < 0 && errno != EEXIST)
                return -errno;
        store->root_fd = open(root, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (store->root_fd < 0)
                return -errno;
        int r = load_all(store);
        if (r < 0)
                return r;
        settle_all(store);
        *ret = TAKE_PTR(store);
        return 0;
}

static void free_strings(char **list, size_t n) {
        for (size_t i = 0; i < n; i++)
                free(list[i]);
        free(list);
}

SnapshotStore *snapshot_store_free(SnapshotStore *store) {
        if (!store)
                return NULL;
        for (size_t i = 0; i < store->n_snapshots; i++)
                snapshot_free_memory(store->snapshots[i]);
        free(store->snapshots);
        free_strings(store->warnings, store->n_warnings);
        free_strings(store->lost, store->n_lost);
        safe_close(store->root_fd);
        free(store->root);
        free(store);
        return NULL;
}

static void remove_path(SnapshotStore *store, const char *dir, const char *name) {
        _cleanup_free_ char *path = snapshot_client_path(store, dir, name);

        if (path)
                (void) store_client_remove(store->client, path, NULL, NULL);
}

/* What a flatten, a change or a removal left that came to no end. */
static void clean_directory(Snapshot *s) {
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *de;

        if (open_list(s->store->root_fd, s->priv->dir, &d) < 0)
                return;
        while ((de = readdir(d))) {
                bool known = streq(de->d_name, ".") || streq(de->d_name, "..") || streq(de->d_name, SNAPSHOT_JSON);

                for (int i = 0; i < _SNAPSHOT_FILE_MAX && !known; i++) {
                        char name[SNAPSHOT_FILE_NAME_MAX];
                        snapshot_file_name(name, (SnapshotFileKind) i, s->priv->files[i].number);
                        known = snapshot_has_file(s, (SnapshotFileKind) i) && streq(de->d_name, name);
                }
                if (!known)
                        remove_path(s->store, s->priv->dir, de->d_name);
        }
}

static void remove_prefixed(SnapshotStore *store, const char *prefix) {
        _cleanup_(closedirp) DIR *d = NULL;
        struct dirent *de;

        if (open_list(store->root_fd, ".", &d) < 0)
                return;
        while ((de = readdir(d)))
                if (startswith(de->d_name, prefix))
                        remove_path(store, de->d_name, NULL);
}

void snapshot_store_retry(SnapshotStore *store) {
        remove_prefixed(store, SNAPSHOT_GONE_PREFIX);
}

static void clean_root(SnapshotStore *store) {
        remove_prefixed(store, SNAPSHOT_NEW_PREFIX);
        remove_prefixed(store, SNAPSHOT_GONE_PREFIX);
        for (size_t i = 0; i < store->n_lost; i++)
                remove_path(store, store->lost[i], NULL);
}

static bool is_left_over(SnapshotStore *store, const Snapshot *s) {
        if (s->n_users > 0)
                return false;
        if (s->kind == SNAPSHOT_PAUSE && store->owned && store->owned(s, store->userdata))
                return false;
        if (snapshot_goes_by_itself(s))
                return true;
        return (s->kind == SNAPSHOT_CHECKPOINT || s->kind == SNAPSHOT_TEMPLATE) && store->owned &&
               !store->owned(s, store->userdata);
}

/* One at a time: with it may go what it stands on, and the list is another. */
static bool drop_left_over(SnapshotStore *store) {
        for (size_t i = 0; i < store->n_snapshots; i++)
                if (is_left_over(store, store->snapshots[i])) {
                        snapshot_drop(store->snapshots[i]);
                        return true;
                }
        return false;
}

void snapshot_store_clean(SnapshotStore *store) {
        store->starting = false;
        clean_root(store);
        /* One that is being changed already has a file there that is not known yet. */
        for (size_t i = 0; i < store->n_snapshots; i++)
                if (!store->snapshots[i]->priv->commits)
                        clean_directory(store->snapshots[i]);
        while (drop_left_over(store))
                ;
        /* A checkpoint of nobody, on which something stands. */
        for (size_t i = 0; i < store->n_snapshots; i++) {
                Snapshot *s = store->snapshots[i];
                if (s->kind == SNAPSHOT_CHECKPOINT && store->owned && !store->owned(s, store->userdata))
                        (void) snapshot_remove(s, NULL, NULL);
        }
}
