/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/image/each-entry.h"
#include "daemon/image/hash-file.h"
#include "daemon/image/layers.h"
#include "daemon/image/objects.h"
#include "daemon/image/store.h"
#include "daemon/json-strict.h"
#include "daemon/template-files.h"

static const char *const file_names[_TEMPLATE_FILE_MAX] = TEMPLATE_FILE_NAMES;

static int open_dir(int dir_fd, const char *name) {
        int fd = openat(dir_fd, name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static int make_dir(int dir_fd, const char *name, int *ret_fd) {
        int fd;

        if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
                return -errno;
        fd = open_dir(dir_fd, name);
        if (fd < 0)
                return fd;
        *ret_fd = fd;
        return 0;
}

static int unlink_if_there(int dir_fd, const char *name, int flags) {
        return unlinkat(dir_fd, name, flags) < 0 && errno != ENOENT ? -errno : 0;
}

static int sync_fd(int fd) {
        return fsync(fd) < 0 ? -errno : 0;
}

/* The tools are gone and the file is root's by now, but a process that a hostile input took over
 * may have left a descriptor with a friend. A read lease is given only when nobody has the file
 * open for writing; file systems without leases answer EINVAL. */
static int check_no_writer(int fd) {
        if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
                return errno == EAGAIN ? -EBUSY : 0;
        (void) fcntl(fd, F_SETLEASE, F_UNLCK);
        return 0;
}

static int finish_file(int dir_fd, TemplateFile file, json_object *files, char *ret_sum) {
        _cleanup_close_ int fd = openat(dir_fd, file_names[file], O_RDONLY|O_NOFOLLOW|O_CLOEXEC);
        _cleanup_json_ json_object *o = json_object_new_object();
        struct stat st;
        int r;

        if (!o)
                return -ENOMEM;
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return -EINVAL;
        r = check_no_writer(fd);
        if (r >= 0)
                r = file == TEMPLATE_FILE_DISK ? hash_sparse_file(fd, ret_sum) : hash_file(fd, ret_sum);
        if (r >= 0)
                r = sync_fd(fd);
        if (r >= 0)
                r = json_add_u64(o, "bytes", (uint64_t) st.st_size);
        if (r >= 0)
                r = json_add_string(o, TEMPLATE_HASH_KEY(file), ret_sum);
        if (r >= 0)
                r = json_add(files, file_names[file], TAKE_PTR(o));
        return r;
}

static int write_description(int dir_fd, json_object *description) {
        _cleanup_close_ int fd = openat(dir_fd, TEMPLATE_JSON, O_WRONLY|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0444);
        const char *text;
        size_t size;
        int r;

        if (fd < 0)
                return -errno;
        text = json_object_to_json_string_length(
                        description, JSON_C_TO_STRING_PRETTY|JSON_C_TO_STRING_SPACED|JSON_C_TO_STRING_NOSLASHESCAPE, &size);
        if (!text)
                return -ENOMEM;
        r = write_full(fd, text, size);
        if (r >= 0)
                r = write_full(fd, "\n", 1);
        return r < 0 ? r : sync_fd(fd);
}

static int open_names(int store_fd, const char *owner, int *ret_fd) {
        _cleanup_close_ int names_fd = -EBADF;
        int r;

        r = make_dir(store_fd, STORE_NAMES, &names_fd);
        if (r >= 0)
                r = make_dir(names_fd, owner, ret_fd);
        return r < 0 ? r : sync_fd(names_fd);
}

typedef char HiddenName[NAME_MAX + 1];

/* One of its own for each pair: two may be at it at the same time. */
static const char *hidden_name(const char *id, const char *name, HiddenName ret) {
        (void) snprintf(ret, sizeof(HiddenName), ".%s.%s", id, name);
        return ret;
}

/* A hidden link comes to be the name, and the name as it was to be the hidden link, by which remove_name_of() puts it back. Not
 * every file system can do that. */
static int set_name(int names_fd, const char *name, const char *id) {
        HiddenName hidden;
        char target[64], other[64];

        (void) snprintf(target, sizeof(target), "../../%s", id);
        int r = unlink_if_there(names_fd, hidden_name(id, name, hidden), 0);
        if (r < 0)
                return r;
        if (symlinkat(target, names_fd, hidden) < 0)
                return -errno;
        bool exchanged = readlinkat(names_fd, name, other, sizeof(other)) >= 0 &&
                         renameat2(names_fd, hidden, names_fd, name, RENAME_EXCHANGE) >= 0;
        if (!exchanged && renameat(names_fd, hidden, names_fd, name) < 0)
                return -errno;
        return sync_fd(names_fd);
}

/* As it was before: what it stood for then lies aside, if it stood for anything. */
static void unset_name(int names_fd, const char *name, const char *id) {
        HiddenName hidden;

        if (renameat(names_fd, hidden_name(id, name, hidden), names_fd, name) < 0)
                (void) unlinkat(names_fd, name, 0);
}

/* All of them or none. */
static int set_names(int store_fd, const char *owner, char *const *names, size_t n_names, const char *id, Fault *fault) {
        _cleanup_close_ int fd = -EBADF, lock = -EBADF;
        HiddenName hidden;

        int r = store_lock(store_fd, &lock);
        if (r >= 0)
                r = open_names(store_fd, owner, &fd);
        if (r < 0)
                return fault_set(fault, r, "naming %s: %s", id, strerror(-r));
        for (size_t i = 0; i < n_names; i++) {
                r = set_name(fd, names[i], id);
                if (r >= 0)
                        continue;
                (void) fault_set(fault, r, "naming %s %s: %s", id, names[i], strerror(-r));
                (void) unlinkat(fd, hidden_name(id, names[i], hidden), 0);
                while (i > 0)
                        unset_name(fd, names[--i], id);
                return r;
        }
        for (size_t i = 0; i < n_names; i++)
                (void) unlinkat(fd, hidden_name(id, names[i], hidden), 0);
        return 0;
}

/* What later builds find. */
static int publish(int store_fd, int dir_fd, const StoreKeys *keys, char sums[][SHA256_HEX_SIZE]) {
        int r = keys->input ? input_set(store_fd, keys->input, sums[TEMPLATE_FILE_ROOT]) : 0;

        return r >= 0 && keys->disk ? layer_put_disk(store_fd, dir_fd, keys->disk, keys->disk_id, sums[TEMPLATE_FILE_DISK]) : r;
}

int store_seal(int store_fd, const char *build, json_object *description, const StoreKeys *keys, Fault *fault) {
        _cleanup_json_ json_object *files = json_object_new_object();
        char sums[_TEMPLATE_FILE_MAX][SHA256_HEX_SIZE];
        _cleanup_close_ int dir_fd = open_dir(store_fd, build);
        int r;

        if (!files)
                return -ENOMEM;
        if (dir_fd < 0)
                return fault_set(fault, dir_fd, "opening %s: %s", build, strerror(-dir_fd));
        for (int i = 0; i < _TEMPLATE_FILE_MAX; i++) {
                r = finish_file(dir_fd, (TemplateFile) i, files, sums[i]);
                if (r >= 0 && object_directory((TemplateFile) i))
                        r = object_share(store_fd, dir_fd, (TemplateFile) i, sums[i]);
                if (r < 0)
                        return fault_set(fault, r, "%s: %s", file_names[i],
                                         r == -EBUSY ? "something that a tool left behind can still write to it" :
                                                       strerror(-r));
        }

        r = publish(store_fd, dir_fd, keys, sums);
        if (r < 0)
                return fault_set(fault, r, "keeping what later builds may begin with: %s", strerror(-r));
        r = json_add(description, "files", TAKE_PTR(files));
        if (r >= 0)
                r = write_description(dir_fd, description);
        if (r >= 0)
                r = sync_fd(dir_fd);
        return r < 0 ? fault_set(fault, r, TEMPLATE_JSON ": %s", strerror(-r)) : 0;
}

int store_reuse(int store_fd, const char *build, const char *id, const char *owner, char *const *names, size_t n_names,
                Fault *fault) {
        if (faccessat(store_fd, id, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                return fault_set(fault, -errno, "template %s: %s", id, strerror(errno));
        int r = set_names(store_fd, owner, names, n_names, id, fault);
        return r < 0 ? r : store_remove(store_fd, build, fault);
}

int store_commit(int store_fd, const char *build, const char *id, const char *owner, char *const *names, size_t n_names,
                 Fault *fault) {
        int r = layer_drop_unused(store_fd, build);

        if (r < 0)
                return fault_set(fault, r, "%s: %s", build, strerror(-r));
        if (renameat2(store_fd, build, store_fd, id, RENAME_NOREPLACE) < 0)
                return fault_set(fault, -errno, "renaming %s to %s: %s", build, id, strerror(errno));
        r = sync_fd(store_fd);
        if (r < 0)
                return fault_set(fault, r, "renaming %s to %s: %s", build, id, strerror(-r));
        return set_names(store_fd, owner, names, n_names, id, fault);
}

int store_name(int store_fd, const char *owner, const char *name, const char *id, Fault *fault) {
        if (faccessat(store_fd, id, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                return fault_set(fault, -errno, "template %s: %s", id, strerror(errno));
        return set_names(store_fd, owner, (char *const[]) { (char *) name }, 1, id, fault);
}

int store_unname(int store_fd, const char *owner, const char *name, Fault *fault) {
        _cleanup_close_ int fd = -EBADF, lock = -EBADF;

        int r = store_lock(store_fd, &lock);
        if (r >= 0)
                r = open_names(store_fd, owner, &fd);
        if (r >= 0)
                r = unlink_if_there(fd, name, 0);
        if (r >= 0)
                r = sync_fd(fd);
        return r < 0 ? fault_set(fault, r, "taking name %s away: %s", name, strerror(-r)) : 0;
}

static int remove_file(int dir_fd, const char *name, void *userdata) {
        return unlink_if_there(dir_fd, name, 0);
}

/* 1: a link to that template, 0: something else, or nothing. */
static int is_name_of(int dir_fd, const char *name, const char *id) {
        char target[64];
        ssize_t n = readlinkat(dir_fd, name, target, sizeof(target) - 1);

        if (n < 0)
                return errno == EINVAL || errno == ENOENT ? 0 : -errno;
        target[n] = 0;
        return startswith(target, "../../") && streq(target + strlen("../../"), id);
}

/* A name whose giving did not come to its end stands for what it stood for before. */
static int remove_name_of(int dir_fd, const char *name, void *id) {
        HiddenName hidden;

        int r = is_name_of(dir_fd, name, id);
        if (r <= 0)
                return r;
        if (*name != '.' && renameat(dir_fd, hidden_name(id, name, hidden), dir_fd, name) >= 0)
                return 0;
        return unlink_if_there(dir_fd, name, 0);
}

static int remove_names_of(int dir_fd, const char *name, void *id) {
        int r = for_each_entry(dir_fd, name, remove_name_of, id);
        return r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

/* The names go first and the directory gets a dead name, so that no half-deleted template is ever found. 0: there was none. */
static int retire(int store_fd, const char *id, char *ret, size_t size) {
        _cleanup_close_ int lock = -EBADF;

        int r = store_lock(store_fd, &lock);
        if (r >= 0)
                r = for_each_entry(store_fd, STORE_NAMES, remove_names_of, (void *) id);
        if (r < 0)
                return r;
        (void) snprintf(ret, size, "%s%s", STORE_REMOVE_PREFIX, id);
        if (renameat(store_fd, id, store_fd, ret) < 0)
                return errno == ENOENT ? 0 : -errno;
        r = sync_fd(store_fd);
        return r < 0 ? r : 1;
}

int store_sweep_shared(int store_fd) {
        _cleanup_close_ int lock = -EBADF;

        int r = store_lock(store_fd, &lock);
        if (r >= 0)
                r = objects_sweep(store_fd);
        return r < 0 ? r : layers_sweep(store_fd);
}

int store_remove(int store_fd, const char *entry, Fault *fault) {
        bool was_build = startswith(entry, STORE_BUILD_PREFIX), was_template = !was_build;
        char name[64];
        int r = 0, q = 0;

        if (sandbox_id_valid(entry)) {
                r = retire(store_fd, entry, name, sizeof(name));
                was_template = r > 0;
        } else if ((startswith(entry, STORE_BUILD_PREFIX) || startswith(entry, STORE_REMOVE_PREFIX)) &&
                 strlen(entry) < sizeof(name) && !strchr(entry, '/'))
                strcpy(name, entry);
        else
                return fault_set(fault, -EINVAL, "\"%s\" is nothing that could be removed", entry);

        /* What a build that failed came to is of use to the next one, but no more than one build's is kept: who lets one after
         * the other fail would fill the disk. What those before it left goes, and what it took of that is not among it. */
        if (r >= 0 && was_build)
                q = store_sweep_shared(store_fd);
        if (r >= 0)
                r = for_each_entry(store_fd, name, remove_file, NULL);
        if (r >= 0)
                r = unlink_if_there(store_fd, name, AT_REMOVEDIR);
        if (r >= 0 && was_template)
                q = store_sweep_shared(store_fd);
        if (r >= 0)
                r = q < 0 ? q : sync_fd(store_fd);
        return r < 0 ? fault_set(fault, r, "removing %s: %s", entry, strerror(-r)) : 0;
}

/* No child is at work then, so that each of them is what a crash left: the names stand as they are. */
static int remove_hidden_name(int dir_fd, const char *name, void *userdata) {
        return *name == '.' ? unlink_if_there(dir_fd, name, 0) : 0;
}

static int remove_hidden_names_of(int dir_fd, const char *name, void *userdata) {
        int r = for_each_entry(dir_fd, name, remove_hidden_name, NULL);
        return r == -ENOTDIR || r == -ELOOP ? 0 : r;
}

int store_clean(int store_fd, char *const *entries, size_t n, Fault *fault) {
        _cleanup_close_ int lock = -EBADF;

        int r = store_lock(store_fd, &lock);
        if (r >= 0)
                r = for_each_entry(store_fd, STORE_NAMES, remove_hidden_names_of, NULL);
        lock = safe_close(lock);
        if (r < 0)
                (void) fault_set(fault, r, "removing names that were being given: %s", strerror(-r));
        for (size_t i = 0; i < n; i++) {
                int q = store_remove(store_fd, entries[i], fault);
                if (q < 0)
                        r = q;
        }
        return r;
}
