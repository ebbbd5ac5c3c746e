/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/copy-range.h"
#include "daemon/image/each-entry.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/layer-delta.h"
#include "daemon/image/layers.h"
#include "daemon/image/objects.h"
#include "daemon/image/slurp.h"
#include "daemon/json-strict.h"

#define DESCRIPTION_MAX MIB(2)
/* What a build's layers have in common with the disk that its guest has. */
#define SHADOW_NAME ".shadow"
#define DISK_NAME "disk.img"

typedef char LayerName[SHA256_HEX_SIZE + sizeof("layer-") + sizeof(".delta")];

static const char *layer_name(const char *key, const char *suffix, LayerName ret) {
        (void) snprintf(ret, sizeof(LayerName), "%s.%s", key, suffix);
        return ret;
}

static const char *link_name(const char *key, LayerName ret) {
        (void) snprintf(ret, sizeof(LayerName), "layer-%s", key);
        return ret;
}

static int open_layers(int store_fd, int *ret_fd) {
        /* The values of a step's environment may be secret. */
        if (mkdirat(store_fd, STORE_LAYERS, 0700) < 0 && errno != EEXIST)
                return -errno;
        *ret_fd = openat(store_fd, STORE_LAYERS, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return *ret_fd < 0 ? -errno : 0;
}

static int open_build(int store_fd, const char *build, int *ret_fd) {
        *ret_fd = openat(store_fd, build, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return *ret_fd < 0 ? -errno : 0;
}

/* Descriptions. */

static int get_sum(json_object *o, const char *key, const char **ret) {
        *ret = NULL;
        if (!json_object_object_get_ex(o, key, NULL))
                return 0;
        int r = json_get_string(o, key, SHA256_HEX_SIZE - 1, ret);
        return r < 0 ? r : sha256_hex_valid(*ret) ? 0 : -EBADMSG;
}

static int load(int layers_fd, const char *key, json_object **ret) {
        static const char *const keys[] = { "parent", "delta", "whole", "id", "parent-id", "state", NULL };
        _cleanup_json_ json_object *o = NULL;
        _cleanup_free_ char *text = NULL;
        const char *sum, *id;
        json_object *state;
        LayerName name;
        size_t size;

        int r = read_file(layers_fd, layer_name(key, "json", name), DESCRIPTION_MAX, &text, &size);
        if (r >= 0)
                r = json_parse_strict(text, size, &o);
        if (r >= 0)
                r = json_check_keys(o, keys);
        for (size_t i = 0; i < 3 && r >= 0; i++)
                r = get_sum(o, keys[i], &sum);
        if (r >= 0)
                r = json_get(o, "state", json_type_object, &state);
        if (r >= 0)
                r = json_get_string(o, "id", LAYER_ID_MAX, &id);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(o);
        return 0;
}

/* Under the lock. */
static int store(int layers_fd, const char *key, json_object *o) {
        const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
        LayerName name, aside;

        (void) snprintf(aside, sizeof(aside), ".%s", key);
        if (!text)
                return -ENOMEM;
        if (unlinkat(layers_fd, aside, 0) < 0 && errno != ENOENT)
                return -errno;
        _cleanup_close_ int fd = openat(layers_fd, aside, O_WRONLY|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0400);
        int r = fd < 0 ? -errno : write_full(fd, text, strlen(text));
        if (r >= 0 && renameat(layers_fd, aside, layers_fd, layer_name(key, "json", name)) < 0)
                r = -errno;
        if (r < 0)
                (void) unlinkat(layers_fd, aside, 0);
        return r;
}

static int remove_file(int layers_fd, const char *key, const char *suffix) {
        LayerName name;

        return unlinkat(layers_fd, layer_name(key, suffix, name), 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int link_file(int dir_fd, const char *file, int layers_fd, const char *key, const char *suffix) {
        LayerName name;

        return linkat(dir_fd, file, layers_fd, layer_name(key, suffix, name), 0) < 0 && errno != EMLINK ? -errno : 0;
}

/* In place of one that was there: that was wrong or was not wanted, or the same work was done twice. */
static int publish(int store_fd, int layers_fd, const char *key, json_object *o, int dir_fd, const char *file, const char *suffix) {
        _cleanup_close_ int lock = -EBADF;

        int r = store_lock(store_fd, &lock);
        if (r >= 0)
                r = remove_file(layers_fd, key, "delta");
        if (r >= 0)
                r = remove_file(layers_fd, key, "whole");
        if (r >= 0)
                r = store(layers_fd, key, o);
        return r < 0 ? r : link_file(dir_fd, file, layers_fd, key, suffix);
}

/* Takes state over. */
static int describe(const char *id, const char *suffix, const char *sum, json_object *state, json_object **ret) {
        _cleanup_json_ json_object *o = json_object_new_object(), *owned = state;

        int r = o ? json_add_string(o, "id", id) : -ENOMEM;
        if (r >= 0)
                r = json_add_string(o, suffix, sum);
        if (r >= 0)
                r = json_add(o, "state", TAKE_PTR(owned));
        if (r >= 0)
                *ret = TAKE_PTR(o);
        return r;
}

int layer_put_disk(int store_fd, int build_fd, const char *key, const char *id, const char *sum) {
        _cleanup_close_ int layers_fd = -EBADF;
        _cleanup_json_ json_object *o = NULL;

        int r = open_layers(store_fd, &layers_fd);
        if (r >= 0)
                r = describe(id, "whole", sum, json_object_new_object(), &o);
        return r < 0 ? r : publish(store_fd, layers_fd, key, o, build_fd, DISK_NAME, "whole");
}

static int write_delta(int dir_fd, int overlay_fd, const char *file, char *ret_sum) {
        _cleanup_close_ int disk_fd = -EBADF, shadow_fd = -EBADF, fd = -EBADF;
        uint64_t size;

        disk_fd = openat(dir_fd, DISK_NAME, O_RDONLY|O_NOFOLLOW|O_CLOEXEC);
        shadow_fd = openat(dir_fd, SHADOW_NAME, O_RDWR|O_CREAT|O_NOFOLLOW|O_CLOEXEC, 0600);
        if (unlinkat(dir_fd, file, 0) < 0 && errno != ENOENT)
                return -errno;
        fd = openat(dir_fd, file, O_RDWR|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0400);
        if (disk_fd < 0 || shadow_fd < 0 || fd < 0)
                return -errno;
        int r = check_regular(disk_fd, false, &size);
        if (r >= 0 && ftruncate(shadow_fd, (off_t) size) < 0)
                r = -errno;
        if (r >= 0)
                r = delta_write(disk_fd, shadow_fd, overlay_fd, size, fd);
        return r < 0 ? r : hash_file(fd, ret_sum);
}

int layer_put(int store_fd, const char *build, const LayerPlace *place, int overlay_fd, json_object *state, Fault *fault) {
        _cleanup_close_ int dir_fd = -EBADF, layers_fd = -EBADF;
        _cleanup_json_ json_object *owned = state, *o = NULL;
        char sum[SHA256_HEX_SIZE];
        LayerName file;

        int r = open_build(store_fd, build, &dir_fd);
        if (r >= 0)
                r = open_layers(store_fd, &layers_fd);
        if (r >= 0)
                r = write_delta(dir_fd, overlay_fd, link_name(place->key, file), sum);
        if (r >= 0)
                r = describe(place->id, "delta", sum, TAKE_PTR(owned), &o);
        if (r >= 0)
                r = json_add_string(o, "parent", place->parent);
        if (r >= 0)
                r = json_add_string(o, "parent-id", place->parent_id);
        if (r >= 0)
                r = publish(store_fd, layers_fd, place->key, o, dir_fd, file, "delta");
        if (r >= 0)
                return 0;
        /* The disk may be full, and no more layers are put on one that is not there. */
        if (dir_fd >= 0) {
                (void) unlinkat(dir_fd, link_name(place->key, file), 0);
                (void) unlinkat(dir_fd, SHADOW_NAME, 0);
        }
        return fault_set(fault, r, "keeping what a step came to: %s", strerror(-r));
}

/* A layer that only this build has is half of one, whose writer was killed, or stands on a parent that was run again. */
static int drop_unused(int dir_fd, const char *name, void *userdata) {
        struct stat st;

        bool unused = streq(name, SHADOW_NAME) || (startswith(name, "layer-") && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) >= 0 &&
                                                   st.st_nlink == 1);
        return unused && unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int layer_drop_unused(int store_fd, const char *build) {
        return for_each_entry(store_fd, build, drop_unused, NULL);
}

/* Taking. */

/* Opens one of its files whose hash is right; takes one away that is not. -ENOENT. */
static int open_checked(int store_fd, int layers_fd, const char *key, const char *suffix, const char *sum, int *ret_fd) {
        _cleanup_close_ int lock = -EBADF;
        char is[SHA256_HEX_SIZE] = "";
        struct stat st, now;
        LayerName name;

        _cleanup_close_ int fd = openat(layers_fd, layer_name(key, suffix, name), O_RDONLY|O_NOFOLLOW|O_NONBLOCK|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        int r = !S_ISREG(st.st_mode) ? -EINVAL : streq(suffix, "whole") ? hash_sparse_file(fd, is) : hash_file(fd, is);
        if (r >= 0 && sum && streq(is, sum)) {
                *ret_fd = TAKE_FD(fd);
                return 0;
        }
        if (r >= 0)
                r = store_lock(store_fd, &lock);
        if (r >= 0 && fstatat(layers_fd, name, &now, AT_SYMLINK_NOFOLLOW) >= 0 && now.st_ino == st.st_ino)
                (void) unlinkat(layers_fd, name, 0);
        return r < 0 ? r : -ENOENT;
}

/* From a whole disk up. */
typedef struct Chain {
        const char *keys[LAYER_KEYS_MAX]; /* of the deltas, uppermost first; borrowed from objects */
        int fds[LAYER_KEYS_MAX];
        json_object *objects[LAYER_KEYS_MAX + 1];
        size_t n, n_objects;
        const char *bottom;
        int whole_fd;
} Chain;

static Chain *chain_free(Chain *c) {
        if (!c)
                return NULL;
        while (c->n > 0)
                safe_close(c->fds[--c->n]);
        while (c->n_objects > 0)
                json_object_put(c->objects[--c->n_objects]);
        safe_close(c->whole_fd);
        free(c);
        return NULL;
}
DEFINE_CLEANUP(Chain *, chain_free);

static bool is_run(json_object *o, const char *id) {
        const char *is;

        return json_get_string(o, "id", LAYER_ID_MAX, &is) >= 0 && (!id || streq(id, is));
}

static bool has_file(int layers_fd, const char *key, const char *suffix) {
        LayerName name;

        return faccessat(layers_fd, layer_name(key, suffix, name), F_OK, AT_SYMLINK_NOFOLLOW) >= 0;
}

/* As the descriptions have it: where a step was run again its whole chain leads nowhere, and would be read once for each of its
 * keys. */
static bool leads_to_disk(int layers_fd, const char *key) {
        _cleanup_json_ json_object *o = NULL;
        const char *parent, *id = NULL;

        for (size_t n = 0; n < LAYER_KEYS_MAX; n++) {
                /* That key and id are of. */
                _cleanup_json_ json_object *above = TAKE_PTR(o);

                if (load(layers_fd, key, &o) < 0 || !is_run(o, id))
                        return false;
                if (has_file(layers_fd, key, "whole"))
                        return true;
                if (!has_file(layers_fd, key, "delta") || get_sum(o, "parent", &parent) < 0 || !parent ||
                    json_get_string(o, "parent-id", LAYER_ID_MAX, &id) < 0)
                        return false;
                key = parent;
        }
        return false;
}

/* What is described by that name, if it is that one. */
static int chain_load(Chain *c, int layers_fd, const char *key, const char *id, json_object **ret) {
        json_object *o;

        if (c->n == ELEMENTSOF(c->fds))
                return -ELOOP;
        int r = load(layers_fd, key, &o);
        if (r < 0)
                return r;
        c->objects[c->n_objects++] = *ret = o;
        return is_run(o, id) ? 0 : -ENOENT;
}

static int chain_find(int store_fd, int layers_fd, const char *key, uint64_t disk_bytes, Chain **ret) {
        _cleanup_(chain_freep) Chain *c = new0(Chain, 1);
        const char *delta, *whole, *parent, *id = NULL;
        struct stat st;
        json_object *o;

        if (!c)
                return -ENOMEM;
        c->whole_fd = -EBADF;
        for (;;) {
                int r = chain_load(c, layers_fd, key, id, &o);
                if (r < 0)
                        return r;
                (void) get_sum(o, "delta", &delta);
                (void) get_sum(o, "whole", &whole);
                (void) get_sum(o, "parent", &parent);
                if (whole && open_checked(store_fd, layers_fd, key, "whole", whole, &c->whole_fd) >= 0)
                        break;
                if (!delta || !parent || json_get_string(o, "parent-id", LAYER_ID_MAX, &id) < 0)
                        return -ENOENT;
                r = open_checked(store_fd, layers_fd, key, "delta", delta, &c->fds[c->n]);
                if (r < 0)
                        return r;
                c->keys[c->n++] = key;
                key = parent;
        }
        c->bottom = key;
        if (fstat(c->whole_fd, &st) < 0 || (uint64_t) st.st_size != disk_bytes)
                return -ENOENT;
        *ret = TAKE_PTR(c);
        return 0;
}

/* The file by that name may be another one by now. */
static int link_same(int store_fd, int layers_fd, const char *key, const char *suffix, int fd, int dir_fd, const char *to) {
        _cleanup_close_ int lock = -EBADF;
        struct stat a, b;
        LayerName name;

        int r = store_lock(store_fd, &lock);
        if (r < 0)
                return r;
        if (fstat(fd, &a) < 0 || fstatat(layers_fd, layer_name(key, suffix, name), &b, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (a.st_ino != b.st_ino)
                return -ENOENT;
        return linkat(layers_fd, name, dir_fd, to, 0) < 0 && errno != EEXIST ? -errno : 0;
}

static int build_disk(const Chain *c, uint64_t disk_bytes, int dir_fd, char *ret_sum) {
        _cleanup_close_ int fd = openat(dir_fd, DISK_NAME, O_RDWR|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0400);
        int r = fd < 0 || ftruncate(fd, (off_t) disk_bytes) < 0 ? -errno : 0;

        if (r >= 0)
                r = copy_range_sparse(c->whole_fd, fd, (FileRange) { 0, 0, disk_bytes });
        for (size_t i = c->n; i > 0 && r >= 0; i--)
                r = delta_apply(c->fds[i - 1], disk_bytes, fd);
        return r < 0 ? r : hash_sparse_file(fd, ret_sum);
}

/* What was put together is what the next one links. */
static int add_whole(int store_fd, int layers_fd, const char *key, const char *id, int dir_fd, const char *sum) {
        _cleanup_close_ int lock = -EBADF;
        _cleanup_json_ json_object *o = NULL;
        const char *is;

        int r = store_lock(store_fd, &lock);
        if (r < 0)
                return r;
        /* By now it may be another one: then this is its own alone. */
        if (load(layers_fd, key, &o) < 0 || json_get_string(o, "id", LAYER_ID_MAX, &is) < 0 || !streq(is, id))
                return 0;
        r = remove_file(layers_fd, key, "whole");
        if (r >= 0)
                r = json_add_string(o, "whole", sum);
        if (r >= 0)
                r = store(layers_fd, key, o);
        return r < 0 ? r : link_file(dir_fd, DISK_NAME, layers_fd, key, "whole");
}

static int take(int store_fd, int layers_fd, const char *key, const Chain *c, uint64_t disk_bytes, int dir_fd) {
        char sum[SHA256_HEX_SIZE];
        const char *id;
        LayerName name;

        /* What led here is to stay as long as what comes of it. */
        for (size_t i = 0; i < c->n; i++)
                (void) link_same(store_fd, layers_fd, c->keys[i], "delta", c->fds[i], dir_fd, link_name(c->keys[i], name));
        if (c->n == 0)
                return link_same(store_fd, layers_fd, key, "whole", c->whole_fd, dir_fd, DISK_NAME);
        (void) link_same(store_fd, layers_fd, c->bottom, "whole", c->whole_fd, dir_fd, link_name(c->bottom, name));
        int r = build_disk(c, disk_bytes, dir_fd, sum);
        if (r >= 0)
                r = json_get_string(c->objects[0], "id", LAYER_ID_MAX, &id);
        return r < 0 ? r : add_whole(store_fd, layers_fd, key, id, dir_fd, sum);
}

int layer_take(int store_fd, const char *build, uint64_t disk_bytes, char *const *keys, size_t n_keys, json_object **ret,
               Fault *fault) {
        _cleanup_close_ int dir_fd = -EBADF, layers_fd = -EBADF;

        *ret = NULL;
        int r = open_build(store_fd, build, &dir_fd);
        if (r >= 0)
                r = open_layers(store_fd, &layers_fd);
        for (size_t i = 0; i < n_keys && r >= 0 && !*ret; i++) {
                _cleanup_(chain_freep) Chain *c = NULL;

                if (!leads_to_disk(layers_fd, keys[i]) || chain_find(store_fd, layers_fd, keys[i], disk_bytes, &c) < 0)
                        continue;
                r = take(store_fd, layers_fd, keys[i], c, disk_bytes, dir_fd);
                if (r >= 0) {
                        *ret = json_object_get(c->objects[0]);
                        r = json_add_u64(*ret, "taken", i);
                } else if (r == -ENOENT || r == -EMLINK)
                        /* Taken away in this moment. */
                        r = 0;
        }
        return r < 0 ? fault_set(fault, r, "taking what earlier steps came to: %s", strerror(-r)) : 0;
}

/* Sweeping. */

static bool has_suffix(const char *name, const char *suffix) {
        return strlen(name) > strlen(suffix) && streq(name + strlen(name) - strlen(suffix), suffix);
}

static int sweep_data(int dir_fd, const char *name, void *userdata) {
        struct stat st;

        if (has_suffix(name, ".json") || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        /* One that begins with a dot is what a crash left of a description. */
        return object_unused(&st) && unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int sweep_description(int dir_fd, const char *name, void *userdata) {
        char key[SHA256_HEX_SIZE];

        if (!has_suffix(name, ".json"))
                return 0;
        (void) snprintf(key, sizeof(key), "%.64s", name);
        if (has_file(dir_fd, key, "delta") || has_file(dir_fd, key, "whole"))
                return 0;
        return unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int layers_sweep(int store_fd) {
        int r = for_each_entry(store_fd, STORE_LAYERS, sweep_data, NULL);

        return r < 0 ? r : for_each_entry(store_fd, STORE_LAYERS, sweep_description, NULL);
}
