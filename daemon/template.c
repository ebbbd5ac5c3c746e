/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/json-strict.h"
#include "daemon/template.h"

#define JSON_BYTES_MAX MIB(1)
#define ROOT_ALIGN 4096U

static const char *const file_names[_TEMPLATE_FILE_MAX] = TEMPLATE_FILE_NAMES;

const char *template_file_name(TemplateFile file) {
        return file_names[file];
}

Template *template_free(Template *t) {
        if (!t)
                return NULL;
        free(t->id);
        free(t->name);
        free(t->tag);
        template_aliases_free(t->aliases);
        free(t->root_type);
        free(t->cmdline);
        sandbox_policy_done(&t->policy);
        exec_defaults_done(&t->defaults);
        free(t->start.command);
        free(t->start.ready);
        free(t);
        return NULL;
}

uint64_t template_floor(const Template *t) {
        return kernel_info_floor(&t->kernel, t->file_bytes[TEMPLATE_FILE_INITRAMFS]);
}

void template_use(Template *t) {
        t->n_users++;
}

void template_release(Template *t) {
        assert(t->n_users > 0);
        t->n_users--;
}

int template_open_file(const Template *t, TemplateFile file, int *ret_fd) {
        _cleanup_close_ int fd = -EBADF;
        char path[64];
        struct stat st;

        (void) snprintf(path, sizeof(path), "%s%s/%s", t->building ? STORE_BUILD_PREFIX : "", t->id, file_names[file]);
        fd = openat(t->store->root_fd, path, O_RDONLY|O_NOFOLLOW|O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size != t->file_bytes[file])
                return -ESTALE;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int add_policy(json_object *o, const Template *t) {
        json_object *p;

        if (!t->has_policy)
                return 0;
        int r = sandbox_policy_to_json(&t->policy, &p);
        return r < 0 ? r : json_add(o, "policy", p);
}

static int add_defaults(json_object *o, const Template *t) {
        json_object *d;

        if (exec_defaults_empty(&t->defaults))
                return 0;
        int r = exec_defaults_to_json(&t->defaults, &d);
        return r < 0 ? r : json_add(o, "defaults", d);
}

static int add_start(json_object *o, const TemplateStart *s) {
        json_object *v = s->command ? json_object_new_object() : NULL;

        if (!s->command)
                return 0;
        int r = json_add(o, "start", v);
        if (r >= 0)
                r = json_add_string(v, "command", s->command);
        if (r >= 0 && s->ready)
                r = json_add_string(v, "ready", s->ready);
        return r < 0 ? r : json_add_u64(v, "ready_timeout_usec", s->ready_timeout_usec);
}

json_object *template_to_json(const Template *t) {
        _cleanup_json_ json_object *o = json_object_new_object();

        if (!o || json_add_u64(o, "version", TEMPLATE_JSON_VERSION) < 0 || json_add_string(o, "id", t->id) < 0 ||
            json_add_string(o, "name", t->name) < 0 || json_add_string(o, "tag", t->tag) < 0 ||
            json_add_u64(o, "owner_uid", t->owner_uid) < 0 || json_add_u64(o, "created_usec", t->created_usec) < 0 ||
            json_add_string(o, "root_type", t->root_type) < 0 ||
            json_add(o, "kernel", kernel_info_to_json(&t->kernel)) < 0 ||
            json_add_string(o, "cmdline", t->cmdline) < 0 || json_add_u64(o, "mem_bytes", t->mem_bytes) < 0 ||
            json_add_u64(o, "cpus", t->cpus) < 0 || json_add_u64(o, "disk_bytes", t->disk_bytes) < 0 || add_policy(o, t) < 0 ||
            add_defaults(o, t) < 0 || add_start(o, &t->start) < 0 ||
            (t->public && json_add(o, "public", json_object_new_boolean(true)) < 0) ||
            (*t->key && json_add_string(o, "key", t->key) < 0) || (*t->tenant && json_add_string(o, "tenant", t->tenant) < 0))
                return NULL;
        return TAKE_PTR(o);
}

json_object *template_to_json_whole(const Template *t) {
        _cleanup_json_ json_object *o = template_to_json(t);
        json_object *files = json_object_new_object();

        int r = o ? json_add(o, "files", files) : -ENOMEM;
        for (int i = 0; i < _TEMPLATE_FILE_MAX && r >= 0; i++) {
                json_object *file = json_object_new_object();
                r = json_add(files, file_names[i], file);
                if (r >= 0)
                        r = json_add_u64(file, "bytes", t->file_bytes[i]);
                if (r >= 0)
                        r = json_add_string(file, TEMPLATE_HASH_KEY(i), t->file_sha256[i]);
        }
        return r < 0 ? NULL : TAKE_PTR(o);
}

int template_readdress(Template *t, const char *id, uid_t owner, const char *tenant, const char *name, const char *tag) {
        char *new_id = strdup(id), *new_name = strdup(name ? name : t->name), *new_tag = strdup(name ? tag : t->tag);

        if (!new_id || !new_name || !new_tag) {
                free(new_id);
                free(new_name);
                free(new_tag);
                return -ENOMEM;
        }
        free(t->id);
        free(t->name);
        free(t->tag);
        t->id = new_id;
        t->name = new_name;
        t->tag = new_tag;
        t->owner_uid = owner;
        tenant_name_copy(t->tenant, tenant);
        t->created_usec = wall_usec();
        /* Whom it was for, and what it was built from, is another host's word. */
        t->public = false;
        t->key[0] = 0;
        return 0;
}

static int get_copy(json_object *o, const char *key, size_t max, char **ret) {
        const char *s;
        int r = json_get_string(o, key, max, &s);

        if (r < 0)
                return r;
        *ret = strdup(s);
        return *ret ? 0 : -ENOMEM;
}

static int parse_file(json_object *files, TemplateFile file, Template *t) {
        const char *const keys[] = { "bytes", TEMPLATE_HASH_KEY(file), NULL };
        const char *sum;
        json_object *o;
        int r;

        r = json_get(files, file_names[file], json_type_object, &o);
        if (r >= 0)
                r = json_check_keys(o, keys);
        if (r >= 0)
                r = json_get_u64(o, "bytes", 1, TEMPLATE_DISK_MAX, &t->file_bytes[file]);
        if (r >= 0)
                r = json_get_string(o, TEMPLATE_HASH_KEY(file), SHA256_HEX_SIZE - 1, &sum);
        if (r >= 0 && !sha256_hex_valid(sum))
                r = -EBADMSG;
        if (r >= 0)
                strcpy(t->file_sha256[file], sum);
        return r;
}

/* Both from releases that know of them. */
static int parse_key(json_object *o, Template *t) {
        json_object *public;
        const char *key;
        int r = 0;

        if (json_object_object_get_ex(o, "public", NULL)) {
                r = json_get(o, "public", json_type_boolean, &public);
                t->public = r >= 0 && json_object_get_boolean(public);
        }
        if (r < 0 || !json_object_object_get_ex(o, "key", NULL))
                return r;
        r = json_get_string(o, "key", SHA256_HEX_SIZE - 1, &key);
        if (r >= 0 && !sha256_hex_valid(key))
                r = -EBADMSG;
        if (r >= 0)
                strcpy(t->key, key);
        return r;
}

static int parse_files(json_object *o, Template *t) {
        static const char *const keys[_TEMPLATE_FILE_MAX + 1] = TEMPLATE_FILE_NAMES;
        json_object *files;
        int r;

        r = json_get(o, "files", json_type_object, &files);
        if (r >= 0)
                r = json_check_keys(files, keys);
        for (int i = 0; r >= 0 && i < _TEMPLATE_FILE_MAX; i++)
                r = parse_file(files, (TemplateFile) i, t);
        return r;
}

static int parse_numbers(json_object *o, Template *t) {
        uint64_t owner, cpus;
        int r;

        r = json_get_u64(o, "owner_uid", 0, UINT32_MAX - 1, &owner);
        if (r >= 0)
                r = json_get_u64(o, "created_usec", 0, INT64_MAX, &t->created_usec);
        if (r >= 0)
                r = json_get_u64(o, "mem_bytes", MIB(1), TEMPLATE_MEMORY_MAX, &t->mem_bytes);
        if (r >= 0)
                r = json_get_u64(o, "cpus", 1, TEMPLATE_CPUS_MAX, &cpus);
        if (r >= 0)
                r = json_get_u64(o, "disk_bytes", MIB(1), TEMPLATE_DISK_MAX, &t->disk_bytes);
        if (r >= 0) {
                t->owner_uid = (uid_t) owner;
                t->cpus = (uint32_t) cpus;
        }
        return r;
}

static int parse_strings(json_object *o, Template *t) {
        json_object *kernel;
        int r;

        r = get_copy(o, "id", 20, &t->id);
        if (r >= 0)
                r = get_copy(o, "name", 63, &t->name);
        if (r >= 0)
                r = get_copy(o, "tag", 63, &t->tag);
        if (r >= 0)
                r = get_copy(o, "root_type", 16, &t->root_type);
        if (r >= 0)
                r = get_copy(o, "cmdline", TEMPLATE_CMDLINE_MAX, &t->cmdline);
        if (r >= 0)
                r = json_get(o, "kernel", json_type_object, &kernel);
        if (r >= 0)
                r = kernel_info_from_json(kernel, &t->kernel);
        return r;
}

/* A template of a cubed that knew none has none. */
static int parse_policy(json_object *o, Template *t) {
        json_object *p;

        t->has_policy = json_object_object_get_ex(o, "policy", &p);
        return t->has_policy ? sandbox_policy_from_json(p, &t->policy) : 0;
}

/* Nor defaults, or it is of no container image. */
static int parse_defaults(json_object *o, Template *t) {
        json_object *d;

        return json_object_object_get_ex(o, "defaults", &d) ? exec_defaults_from_json(d, &t->defaults) : 0;
}

/* It may have lines, as a script has. *ret stays NULL when there is none. */
static int dup_command(json_object *o, const char *key, char **ret) {
        json_object *v;

        if (!json_object_object_get_ex(o, key, NULL))
                return 0;
        int r = json_get(o, key, json_type_string, &v);
        if (r < 0)
                return r;
        const char *text = json_object_get_string(v);
        size_t n = (size_t) json_object_get_string_len(v);
        if (n == 0 || n > TEMPLATE_COMMAND_MAX || strlen(text) != n)
                return -EBADMSG;
        *ret = strdup(text);
        return *ret ? 0 : -ENOMEM;
}

/* Nor what a build had started. */
static int parse_start(json_object *o, TemplateStart *ret) {
        static const char *const keys[] = { "command", "ready", "ready_timeout_usec", NULL };
        json_object *v;

        if (!json_object_object_get_ex(o, "start", &v))
                return 0;
        int r = json_object_is_type(v, json_type_object) ? json_check_keys(v, keys) : -EBADMSG;
        if (r >= 0)
                r = dup_command(v, "command", &ret->command);
        if (r >= 0)
                r = dup_command(v, "ready", &ret->ready);
        if (r >= 0)
                r = json_get_u64(v, "ready_timeout_usec", 0, UINT64_MAX, &ret->ready_timeout_usec);
        return r >= 0 && !ret->command ? -EBADMSG : r;
}

/* Nor tenants. */
static int parse_tenant(json_object *o, Template *t) {
        const char *name;

        if (!json_object_object_get_ex(o, "tenant", NULL))
                return 0;
        int r = json_get_string(o, "tenant", TENANT_NAME_MAX - 1, &name);
        if (r >= 0 && !tenant_name_valid(name))
                r = -EBADMSG;
        if (r >= 0)
                tenant_name_copy(t->tenant, name);
        return r;
}

static bool is_consistent(const Template *t) {
        return sandbox_id_valid(t->id) && template_name_valid(t->name) && template_name_valid(t->tag) &&
                (streq(t->root_type, "squashfs") || streq(t->root_type, "erofs")) &&
                t->kernel.file_bytes == t->file_bytes[TEMPLATE_FILE_KERNEL] &&
                t->disk_bytes == t->file_bytes[TEMPLATE_FILE_DISK] &&
                t->file_bytes[TEMPLATE_FILE_ROOT] % ROOT_ALIGN == 0;
}

static int parse(const char *text, size_t size, Template *t, const char **ret_reason) {
        static const char *const keys[] = {
                "version", "id", "name", "tag", "owner_uid", "created_usec", "root_type", "kernel", "cmdline",
                "mem_bytes", "cpus", "disk_bytes", "files", "policy", "defaults", "start", "tenant", "public",
                "key", NULL,
        };
        _cleanup_json_ json_object *o = NULL;
        uint64_t version;
        int r;

        *ret_reason = TEMPLATE_JSON " is no JSON object";
        r = json_parse_strict(text, size, &o);
        if (r < 0)
                return r;

        *ret_reason = "its version is not one that this cubed knows";
        r = json_get_u64(o, "version", TEMPLATE_JSON_VERSION, TEMPLATE_JSON_VERSION, &version);
        if (r < 0)
                return r;

        *ret_reason = TEMPLATE_JSON " has a key that is unknown, missing, or of a wrong value";
        r = json_check_keys(o, keys);
        if (r >= 0)
                r = parse_strings(o, t);
        if (r >= 0)
                r = parse_numbers(o, t);
        if (r >= 0)
                r = parse_files(o, t);
        if (r >= 0)
                r = parse_policy(o, t);
        if (r >= 0)
                r = parse_defaults(o, t);
        if (r >= 0)
                r = parse_start(o, &t->start);
        if (r >= 0)
                r = parse_tenant(o, t);
        if (r >= 0)
                r = parse_key(o, t);
        if (r < 0)
                return r;

        *ret_reason = TEMPLATE_JSON " contradicts itself";
        return is_consistent(t) ? 0 : -EBADMSG;
}

int template_parse(const char *text, size_t size, Template **ret, const char **ret_reason) {
        _cleanup_(template_freep) Template *t = new0(Template, 1);

        *ret_reason = "out of memory";
        if (!t)
                return -ENOMEM;
        int r = parse(text, size, t, ret_reason);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(t);
        return 0;
}

static int check_sizes(int dir_fd, const Template *t) {
        for (int i = 0; i < _TEMPLATE_FILE_MAX; i++) {
                struct stat st;

                if (fstatat(dir_fd, file_names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return -errno;
                if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size != t->file_bytes[i])
                        return -ESTALE;
        }
        return 0;
}

int template_load(int store_fd, const char *id, Template **ret, const char **ret_reason) {
        _cleanup_(template_freep) Template *t = new0(Template, 1);
        _cleanup_close_ int dir_fd = -EBADF;
        _cleanup_free_ char *text = NULL;
        size_t size;
        int r;

        *ret_reason = "it can't be read";
        if (!t)
                return -ENOMEM;
        dir_fd = openat(store_fd, id, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
        if (dir_fd < 0)
                return -errno;
        r = read_file(dir_fd, TEMPLATE_JSON, JSON_BYTES_MAX, &text, &size);
        if (r < 0)
                return r;
        r = parse(text, size, t, ret_reason);
        if (r < 0)
                return r;

        *ret_reason = "its " TEMPLATE_JSON " is another's";
        if (!streq(t->id, id))
                return -EBADMSG;
        *ret_reason = "a file is missing or not as large as " TEMPLATE_JSON " says";
        r = check_sizes(dir_fd, t);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(t);
        return 0;
}

int template_ref_parse(const char *ref, char **ret_name, char **ret_tag) {
        const char *colon = strchrnul(ref, ':');
        _cleanup_free_ char *name = strndup(ref, (size_t) (colon - ref));
        _cleanup_free_ char *tag = strdup(*colon ? colon + 1 : TEMPLATE_TAG_DEFAULT);

        if (!name || !tag)
                return -ENOMEM;
        if (!template_name_valid(name) || !template_name_valid(tag))
                return -EINVAL;
        *ret_name = TAKE_PTR(name);
        *ret_tag = TAKE_PTR(tag);
        return 0;
}
