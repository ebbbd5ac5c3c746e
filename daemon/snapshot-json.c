/* SPDX-License-Identifier: Apache-2.0 */

/* snapshot.json: what a snapshot is, and which of the files in its directory are its own. */

#include <fcntl.h>
#include <systemd/sd-id128.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/snapshot-private.h"

#define NAME_MAX_BYTES 128U
#define TEMPLATE_REF_MAX 127U /* NAME:TAG */

static void id_to_hex(const uint8_t id[static SNAPSHOT_ID_BYTES], char ret[static SD_ID128_STRING_MAX]) {
        sd_id128_t u;

        memcpy(u.bytes, id, sizeof(u.bytes));
        (void) sd_id128_to_string(u, ret);
}

static int hex_to_id(const char *hex, uint8_t ret[static SNAPSHOT_ID_BYTES]) {
        sd_id128_t u;

        if (strlen(hex) != 2 * SNAPSHOT_ID_BYTES || sd_id128_from_string(hex, &u) < 0)
                return -EBADMSG;
        memcpy(ret, u.bytes, sizeof(u.bytes));
        return 0;
}

static int add_strings(json_object *o, const Snapshot *s) {
        const struct {
                const char *key, *value;
        } strings[] = {
                { "id", s->id },
                { "kind", snapshot_kind_to_string(s->kind) },
                { "name", s->name },
                { "tenant", *s->tenant ? s->tenant : NULL },
                { "sandbox", s->sandbox_id },
                { "template", s->template_id },
                { "template-name", s->template_name },
                { "boot", s->durable ? NULL : s->priv->boot },
                { "parent", s->parent ? s->parent->id : NULL },
                { "memory-parent", s->memory_parent ? s->memory_parent->id : NULL },
        };
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(strings) && r >= 0; i++)
                if (strings[i].value)
                        r = json_add_string(o, strings[i].key, strings[i].value);
        return r;
}

static int add_numbers(json_object *o, const Snapshot *s) {
        const struct {
                const char *key;
                uint64_t value;
        } numbers[] = {
                { "owner-uid", s->owner_uid },
                { "created", s->created_usec },
                { "number", s->number },
                { "memory", s->mem_bytes },
                { "boot-memory", s->boot_mem_bytes },
                { "plug", s->plug_bytes },
                { "disk", s->disk_bytes },
                { "cpu-quota", s->cpu_quota_usec },
                { "cpus", s->cpus },
        };
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(numbers) && r >= 0; i++)
                r = json_add_u64(o, numbers[i].key, numbers[i].value);
        return r;
}

static int add_files(json_object *o, const Snapshot *s) {
        json_object *files = json_object_new_object();
        int r = json_add(o, "files", files);

        for (int i = 0; r >= 0 && i < _SNAPSHOT_FILE_MAX; i++) {
                if (!snapshot_has_file(s, (SnapshotFileKind) i))
                        continue;
                json_object *file = json_object_new_object();
                r = json_add(files, snapshot_file_base((SnapshotFileKind) i), file);
                if (r >= 0)
                        r = json_add_u64(file, "number", s->priv->files[i].number);
                if (r >= 0)
                        r = json_add_u64(file, "bytes", s->priv->files[i].bytes);
        }
        return r;
}

json_object *snapshot_to_json(const Snapshot *s) {
        _cleanup_json_ json_object *o = json_object_new_object();
        char uuid[SD_ID128_STRING_MAX];

        if (!o || json_add_u64(o, "version", SNAPSHOT_JSON_VERSION) < 0 || add_strings(o, s) < 0 ||
            add_numbers(o, s) < 0 || add_files(o, s) < 0)
                return NULL;
        id_to_hex(s->uuid, uuid);
        if (s->has_memory && json_add_string(o, "uuid", uuid) < 0)
                return NULL;
        return TAKE_PTR(o);
}

int snapshot_write_json(const Snapshot *s, const char *name, int *ret_fd) {
        _cleanup_json_ json_object *o = snapshot_to_json(s);
        _cleanup_close_ int dir = -EBADF, fd = -EBADF;

        const char *text = o ? json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN) : NULL;
        if (!text)
                return -ENOMEM;
        int r = snapshot_open_directory(s, &dir);
        if (r < 0)
                return r;
        fd = openat(dir, name, O_WRONLY|O_CREAT|O_TRUNC|O_NOFOLLOW|O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        r = write_full(fd, text, strlen(text));
        if (r < 0)
                return r;
        if (ret_fd)
                *ret_fd = TAKE_FD(fd);
        return 0;
}

static int parse_strings(json_object *o, Snapshot *s) {
        _cleanup_free_ char *uuid = NULL, *boot = NULL, *tenant = NULL;
        const char *id, *kind;
        const struct {
                const char *key;
                size_t max;
                char **field;
        } strings[] = {
                { "name", NAME_MAX_BYTES, &s->name },
                { "tenant", TENANT_NAME_MAX - 1, &tenant },
                { "sandbox", sizeof(s->id) - 1, &s->sandbox_id },
                { "template", sizeof(s->id) - 1, &s->template_id },
                { "template-name", TEMPLATE_REF_MAX, &s->template_name },
                { "parent", sizeof(s->id) - 1, &s->priv->parent_id },
                { "memory-parent", sizeof(s->id) - 1, &s->priv->memory_parent_id },
                { "uuid", 2 * SNAPSHOT_ID_BYTES, &uuid },
                { "boot", SNAPSHOT_BOOT_MAX - 1, &boot },
        };

        int r = json_get_string(o, "id", sizeof(s->id) - 1, &id);
        if (r >= 0)
                r = json_get_string(o, "kind", 16, &kind);
        for (size_t i = 0; i < ELEMENTSOF(strings) && r >= 0; i++)
                r = json_dup_optional(o, strings[i].key, strings[i].max, strings[i].field);
        if (r >= 0 && uuid)
                r = hex_to_id(uuid, s->uuid);
        if (r < 0)
                return r;
        /* Those of a cubed that knew no tenants have none. */
        if (tenant && !tenant_name_valid(tenant))
                return -EBADMSG;
        tenant_name_copy(s->tenant, tenant);
        strcpy(s->id, id);
        strcpy(s->priv->boot, strempty(boot));
        s->kind = snapshot_kind_from_string(kind);
        s->has_memory = uuid;
        s->durable = !boot;
        return s->kind < 0 ? -EBADMSG : 0;
}

static int parse_numbers(json_object *o, Snapshot *s) {
        uint64_t owner, cpus;
        const JsonNumber numbers[] = {
                { "owner-uid", 0, UINT32_MAX - 1, &owner },
                { "created", 0, INT64_MAX, &s->created_usec },
                { "number", 0, INT64_MAX, &s->number },
                { "memory", 1, SNAPSHOT_BYTES_MAX, &s->mem_bytes },
                { "boot-memory", 1, SNAPSHOT_BYTES_MAX, &s->boot_mem_bytes },
                { "plug", 0, SNAPSHOT_BYTES_MAX, &s->plug_bytes },
                { "disk", 0, SNAPSHOT_BYTES_MAX, &s->disk_bytes },
                { "cpu-quota", 1, UINT64_MAX, &s->cpu_quota_usec },
                { "cpus", 1, 255, &cpus },
        };

        int r = json_get_numbers(o, numbers, ELEMENTSOF(numbers));
        if (r < 0)
                return r;
        s->owner_uid = (uid_t) owner;
        s->cpus = (uint32_t) cpus;
        return 0;
}

static int parse_file(json_object *files, SnapshotFileKind file, Snapshot *s) {
        static const char *const keys[] = { "number", "bytes", NULL };
        uint64_t number;
        json_object *o;

        int r = json_get(files, snapshot_file_base(file), json_type_object, &o);
        if (r >= 0)
                r = json_check_keys(o, keys);
        if (r >= 0)
                r = json_get_u64(o, "number", 0, UINT32_MAX - 1, &number);
        if (r >= 0)
                r = json_get_u64(o, "bytes", 0, SNAPSHOT_BYTES_MAX, &s->priv->files[file].bytes);
        if (r >= 0)
                s->priv->files[file].number = (uint32_t) number;
        return r;
}

/* Exactly those that one of its kind has. */
static int parse_files(json_object *o, Snapshot *s) {
        const char *keys[_SNAPSHOT_FILE_MAX + 1] = {};
        json_object *files;
        size_t n = 0;

        int r = json_get(o, "files", json_type_object, &files);
        for (int i = 0; r >= 0 && i < _SNAPSHOT_FILE_MAX; i++)
                if (snapshot_has_file(s, (SnapshotFileKind) i)) {
                        keys[n++] = snapshot_file_base((SnapshotFileKind) i);
                        r = parse_file(files, (SnapshotFileKind) i, s);
                }
        return r < 0 ? r : json_check_keys(files, keys);
}

static bool optional_id_valid(const char *id) {
        return !id || sandbox_id_valid(id);
}

static bool is_consistent(const Snapshot *s) {
        static const uint8_t none[SNAPSHOT_ID_BYTES];

        return sandbox_id_valid(s->id) && s->template_id && sandbox_id_valid(s->template_id) &&
               optional_id_valid(s->sandbox_id) && optional_id_valid(s->priv->parent_id) &&
               optional_id_valid(s->priv->memory_parent_id) &&
               !(s->kind == SNAPSHOT_TEMPLATE && (s->priv->parent_id || s->priv->memory_parent_id)) &&
               (s->has_memory || !s->priv->memory_parent_id) &&
               (!s->has_memory || memcmp(s->uuid, none, sizeof(none)) != 0) &&
               (s->durable || strlen(s->priv->boot) == SNAPSHOT_BOOT_MAX - 1);
}

int snapshot_parse(const char *text, size_t size, Snapshot *s, const char **ret_reason) {
        static const char *const keys[] = {
                "version", "id", "kind", "name", "tenant", "sandbox", "template", "template-name", "boot", "parent",
                "memory-parent", "uuid", "owner-uid", "created", "number", "memory", "boot-memory", "plug", "disk",
                "cpu-quota", "cpus", "files", NULL,
        };
        _cleanup_json_ json_object *o = NULL;
        uint64_t version;

        *ret_reason = SNAPSHOT_JSON " is no JSON object";
        int r = json_parse_strict(text, size, &o);
        if (r < 0)
                return r;

        *ret_reason = "its version is not one that this cubed knows";
        r = json_get_u64(o, "version", SNAPSHOT_JSON_VERSION, SNAPSHOT_JSON_VERSION, &version);
        if (r < 0)
                return r;

        *ret_reason = SNAPSHOT_JSON " has a key that is unknown, missing, or of a wrong value";
        r = json_check_keys(o, keys);
        if (r >= 0)
                r = parse_strings(o, s);
        if (r >= 0)
                r = parse_numbers(o, s);
        if (r >= 0)
                r = parse_files(o, s);
        if (r < 0)
                return r;

        *ret_reason = SNAPSHOT_JSON " contradicts itself";
        return is_consistent(s) ? 0 : -EBADMSG;
}

int snapshot_check_json(const Snapshot *s) {
        _cleanup_(snapshot_free_memoryp) Snapshot *again = snapshot_alloc();
        _cleanup_json_ json_object *o = snapshot_to_json(s);
        const char *reason;

        const char *text = o ? json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN) : NULL;
        if (!again || !text)
                return -ENOMEM;
        int r = snapshot_parse(text, strlen(text), again, &reason);
        return r == -EBADMSG ? -EINVAL : r;
}
