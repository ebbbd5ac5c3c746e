/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/image/each-entry.h"
#include "daemon/image/objects.h"
#include "daemon/image/store.h"
#include "daemon/image/usage.h"
#include "daemon/json-strict.h"
#include "daemon/template-files.h"

/* A file that has more than one name, of the templates to go. */
typedef struct Shared {
        ino_t ino;
        nlink_t n_seen;            /* of its names, in these */
} Shared;

/* One survey of the store. */
typedef struct Survey {
        json_object *templates, *objects[_TEMPLATE_FILE_MAX], *layers, *leftovers, *names;
        json_object *kind;                 /* which of these is being looked at */
        bool more;
        Shared *shared;
        size_t n_shared;
        uint64_t bytes;                    /* of the directory that is being measured */
        int names_fd, store_fd;
        const char *uid;
} Survey;

/* What else an admin put there is not ours to name. */
static bool is_plain(const char *name) {
        for (; *name; name++)
                if (*name <= ' ' || *name > '~')
                        return false;
        return true;
}

static int add(Survey *s, json_object *o, int max, const char *name, uint64_t bytes) {
        if (!is_plain(name))
                return 0;
        if (json_object_object_length(o) >= max) {
                s->more = true;
                return 0;
        }
        return json_add_u64(o, name, bytes);
}

static uint64_t disk_bytes(const struct stat *st) {
        return (uint64_t) st->st_blocks * 512;
}

static Shared *find_shared(const Survey *s, ino_t ino) {
        for (size_t i = 0; i < s->n_shared; i++)
                if (s->shared[i].ino == ino)
                        return &s->shared[i];
        return NULL;
}

static int see(Survey *s, ino_t ino, Shared **ret) {
        *ret = find_shared(s, ino);
        if (!*ret) {
                Shared *grown = s->n_shared % 64 > 0 ? s->shared : reallocarray(s->shared, s->n_shared + 64, sizeof(*grown));
                if (!grown)
                        return -ENOMEM;
                s->shared = grown;
                *ret = &s->shared[s->n_shared++];
                **ret = (Shared) { .ino = ino };
        }
        (*ret)->n_seen++;
        return 0;
}

/* What others have as well is counted where it is kept for all; what templates to go have among them with the last of them. */
static int measure_entry(int dir_fd, const char *name, void *userdata) {
        Survey *s = userdata;
        Shared *shared;
        struct stat st;

        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (S_ISREG(st.st_mode) && st.st_nlink > 1) {
                int r = see(s, st.st_ino, &shared);
                if (r < 0 || shared->n_seen < st.st_nlink)
                        return r;
        }
        s->bytes += disk_bytes(&st);
        return 0;
}

static int measure(Survey *s, const char *name) {
        struct stat st;

        s->bytes = 0;
        int r = for_each_entry(s->store_fd, name, measure_entry, s);
        if (r >= 0 && fstatat(s->store_fd, name, &st, AT_SYMLINK_NOFOLLOW) >= 0)
                s->bytes += disk_bytes(&st);
        return r;
}

static int survey_entry(int dir_fd, const char *name, void *userdata) {
        Survey *s = userdata;

        if (!startswith(name, STORE_BUILD_PREFIX) && !startswith(name, STORE_REMOVE_PREFIX))
                return 0;
        int r = measure(s, name);
        if (r == -ENOTDIR || r == -ELOOP)
                return 0;
        return r < 0 ? r : add(s, s->leftovers, USAGE_OTHERS_MAX, name, s->bytes);
}

/* Nobody has it but those that go. */
static bool goes(const Survey *s, const struct stat *st) {
        const Shared *shared = find_shared(s, st->st_ino);

        return st->st_nlink <= 1 + (shared ? shared->n_seen : 0);
}

static int survey_object(int dir_fd, const char *name, void *userdata) {
        Survey *s = userdata;
        struct stat st;

        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        return goes(s, &st) ? add(s, s->kind, USAGE_OTHERS_MAX, name, disk_bytes(&st)) : 0;
}

/* Of a layer's files, that with its description: the others go each for itself, and it with the last. */
static int survey_layer(int dir_fd, const char *name, void *userdata) {
        static const char *const suffixes[] = { ".whole", ".delta" };
        char key[SHA256_HEX_SIZE], file[SHA256_HEX_SIZE + 8];
        Survey *s = userdata;
        uint64_t bytes = 0;
        bool all = true;
        struct stat st;

        if (strlen(name) != SHA256_HEX_SIZE - 1 + strlen(".json") || !streq(name + SHA256_HEX_SIZE - 1, ".json"))
                return 0;
        (void) snprintf(key, sizeof(key), "%.64s", name);
        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++) {
                (void) snprintf(file, sizeof(file), "%s%s", key, suffixes[i]);
                if (fstatat(dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                if (goes(s, &st))
                        bytes += disk_bytes(&st);
                else
                        all = false;
        }
        if (all && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) >= 0)
                bytes += disk_bytes(&st);
        return bytes > 0 ? add(s, s->layers, USAGE_OTHERS_MAX, key, bytes) : 0;
}

/* A link to a template that is not there. One whose name begins with a dot is being made, or was given up. */
static bool is_dangling(int store_fd, int dir_fd, const char *name) {
        char target[64];
        ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);

        target[n > 0 ? n : 0] = 0;
        return n > 0 && startswith(target, "../../") && sandbox_id_valid(target + strlen("../../")) &&
                faccessat(store_fd, target + strlen("../../"), F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static int survey_name(int dir_fd, const char *name, void *userdata) {
        char full[NAME_MAX + 32];
        Survey *s = userdata;

        if (!is_dangling(s->store_fd, dir_fd, name))
                return 0;
        (void) snprintf(full, sizeof(full), "%s/%s", s->uid, name);
        return add(s, s->names, USAGE_OTHERS_MAX, full, 0);
}

static int survey_names_of(int dir_fd, const char *name, void *userdata) {
        Survey *s = userdata;

        s->uid = name;
        int r = for_each_entry(dir_fd, name, survey_name, s);
        return r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

static int survey(Survey *s, char *const *ids, size_t n_ids) {
        int r = 0;

        for (size_t i = 0; i < n_ids && r >= 0; i++) {
                r = measure(s, ids[i]);
                if (r >= 0)
                        r = add(s, s->templates, USAGE_TEMPLATES_MAX, ids[i], s->bytes);
        }
        if (r >= 0)
                r = for_each_entry(s->store_fd, ".", survey_entry, s);
        for (size_t i = 0; i < _TEMPLATE_FILE_MAX && r >= 0; i++) {
                s->kind = s->objects[i];
                if (s->kind)
                        r = for_each_entry(s->store_fd, object_directory((TemplateFile) i), survey_object, s);
        }
        if (r >= 0)
                r = for_each_entry(s->store_fd, STORE_LAYERS, survey_layer, s);
        return r < 0 ? r : for_each_entry(s->store_fd, STORE_NAMES, survey_names_of, s);
}

static json_object *new_member(json_object *o, const char *name) {
        json_object *member = json_object_new_object();
        return json_add(o, name, member) < 0 ? NULL : member;
}

static const char *const object_kinds[_TEMPLATE_FILE_MAX] = {
        [TEMPLATE_FILE_KERNEL] = "kernels",
        [TEMPLATE_FILE_INITRAMFS] = "initramfs",
        [TEMPLATE_FILE_ROOT] = "roots",
};

static int new_members(Survey *s, json_object *o) {
        s->templates = new_member(o, "templates");
        s->layers = new_member(o, "layers");
        s->leftovers = new_member(o, "leftovers");
        s->names = new_member(o, "names");
        for (size_t i = 0; i < _TEMPLATE_FILE_MAX; i++)
                if (object_kinds[i] && !(s->objects[i] = new_member(o, object_kinds[i])))
                        return -ENOMEM;
        return s->templates && s->layers && s->leftovers && s->names ? 0 : -ENOMEM;
}

int store_usage(int store_fd, char *const *ids, size_t n_ids, json_object **ret, Fault *fault) {
        _cleanup_json_ json_object *o = json_object_new_object();
        _cleanup_free_ Survey *s = new0(Survey, 1);

        if (!o || !s)
                return -ENOMEM;
        s->store_fd = store_fd;

        int r = new_members(s, o);
        if (r >= 0)
                r = survey(s, ids, n_ids);
        free(s->shared);
        if (r >= 0)
                r = json_add(o, "more", json_object_new_boolean(s->more));
        if (r < 0)
                return fault_set(fault, r, "looking at the store: %s", strerror(-r));
        *ret = TAKE_PTR(o);
        return 0;
}

static int sweep_name(int dir_fd, const char *name, void *userdata) {
        const int *store_fd = userdata;

        if (!is_dangling(*store_fd, dir_fd, name))
                return 0;
        return unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int sweep_names_of(int dir_fd, const char *name, void *userdata) {
        int r = for_each_entry(dir_fd, name, sweep_name, userdata);
        return r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

int store_sweep(int store_fd, Fault *fault) {
        _cleanup_close_ int lock = -EBADF;

        int r = store_sweep_shared(store_fd);
        if (r >= 0)
                r = store_lock(store_fd, &lock);
        if (r >= 0)
                r = for_each_entry(store_fd, STORE_NAMES, sweep_names_of, &store_fd);
        return r < 0 ? fault_set(fault, r, "sweeping the store: %s", strerror(-r)) : 0;
}
