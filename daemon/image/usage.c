/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/parse.h"
#include "daemon/image/each-entry.h"
#include "daemon/image/usage.h"
#include "daemon/json-strict.h"
#include "daemon/template-files.h"

/* A kernel, an initramfs and a root image. */
#define USAGE_SHARED_FILES 3

/* One survey of the store. */
typedef struct Survey {
        json_object *templates, *kernels, *leftovers, *names;
        bool more;
        /* Of the templates to go, one for each that shares its: kernels, and what is shared by templates on each other. */
        ino_t shared[USAGE_TEMPLATES_MAX * USAGE_SHARED_FILES];
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

/* A kernel that others may have as well is counted apart, and what templates on each other share for none of them. */
static int measure_entry(int dir_fd, const char *name, void *userdata) {
        Survey *s = userdata;
        struct stat st;

        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (S_ISREG(st.st_mode) && st.st_nlink > 1) {
                if (s->n_shared < ELEMENTSOF(s->shared))
                        s->shared[s->n_shared++] = st.st_ino;
                return 0;
        }
        s->bytes += (uint64_t) st.st_blocks * 512;
        return 0;
}

static int measure(Survey *s, const char *name) {
        s->bytes = 0;
        return for_each_entry(s->store_fd, name, measure_entry, s);
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

static nlink_t count_shared(const Survey *s, ino_t ino) {
        nlink_t n = 0;

        for (size_t i = 0; i < s->n_shared; i++)
                n += s->shared[i] == ino;
        return n;
}

static int survey_kernel(int dir_fd, const char *name, void *userdata) {
        Survey *s = userdata;
        struct stat st;

        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        if (st.st_nlink > 1 + count_shared(s, st.st_ino))
                return 0;
        return add(s, s->kernels, USAGE_OTHERS_MAX, name, (uint64_t) st.st_blocks * 512);
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
        if (r >= 0)
                r = for_each_entry(s->store_fd, STORE_KERNELS, survey_kernel, s);
        return r < 0 ? r : for_each_entry(s->store_fd, STORE_NAMES, survey_names_of, s);
}

static json_object *new_member(json_object *o, const char *name) {
        json_object *member = json_object_new_object();
        return json_add(o, name, member) < 0 ? NULL : member;
}

int store_usage(int store_fd, char *const *ids, size_t n_ids, json_object **ret, Fault *fault) {
        _cleanup_json_ json_object *o = json_object_new_object();
        _cleanup_free_ Survey *s = new0(Survey, 1);

        if (!o || !s)
                return -ENOMEM;
        s->store_fd = store_fd;
        s->templates = new_member(o, "templates");
        s->kernels = new_member(o, "kernels");
        s->leftovers = new_member(o, "leftovers");
        s->names = new_member(o, "names");
        if (!s->templates || !s->kernels || !s->leftovers || !s->names)
                return -ENOMEM;

        int r = survey(s, ids, n_ids);
        if (r >= 0)
                r = json_add(o, "more", json_object_new_boolean(s->more));
        if (r < 0)
                return fault_set(fault, r, "looking at the store: %s", strerror(-r));
        *ret = TAKE_PTR(o);
        return 0;
}

static int sweep_kernel(int dir_fd, const char *name, void *userdata) {
        struct stat st;

        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_nlink > 1)
                return 0;
        return unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
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
        int r = for_each_entry(store_fd, STORE_KERNELS, sweep_kernel, NULL);

        if (r >= 0)
                r = for_each_entry(store_fd, STORE_NAMES, sweep_names_of, &store_fd);
        return r < 0 ? fault_set(fault, r, "sweeping the store: %s", strerror(-r)) : 0;
}
