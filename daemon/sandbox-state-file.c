/* SPDX-License-Identifier: Apache-2.0 */

/* What a restarted cubed must know of a sandbox, as JSON; of secrets it holds none. In two places:
 *
 * state.json in the sandbox's directory under /run, to take a running one over. Written whenever that
 * changes. Times are those of CLOCK_BOOTTIME where they decide something: it does not outlive the boot.
 *
 * sandbox.json (sandbox-keep.c), of one that is paused or failed and has no VMM. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/capture.h"
#include "daemon/host-network.h"
#include "daemon/id.h"
#include "daemon/json-strict.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "daemon/write-file.h"
#include "net/net-client.h"

/* A policy can be as long as a packet to cube-netd. */
#define STATE_FILE_MAX (1024U * 1024U)
#define STRING_MAX 1024U
#define SAVE_AGAIN_USEC USEC_PER_SEC
#define LABELS_MAX 64U

static int add_strings(json_object *o, const Sandbox *s, SandboxState state, const Snapshot *disk, const Snapshot *memory) {
        const struct {
                const char *key, *value;
        } strings[] = {
                { "id", s->id },
                { "state", sandbox_state_to_string(state) },
                { "template", s->template_id },
                { "template-name", s->template_name },
                { "hostname", s->hostname },
                { "request-id", s->request_id },
                { "tenant", *s->tenant ? s->tenant : NULL },
                { "bound-client", s->bound_client },
                { "kernel-release", s->kernel_release },
                { "disk-top", disk ? disk->id : NULL },
                { "memory-top", memory ? memory->id : NULL },
                { "on-timeout", sandbox_end_to_string(s->on_timeout) },
                { "capture", *s->priv->capture_id ? s->priv->capture_id : NULL },
                { "rollback", *s->priv->rollback_id ? s->priv->rollback_id : NULL },
                { "address", *s->address4 ? s->address4 : NULL },
                { "address6", *s->address6 ? s->address6 : NULL },
        };
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(strings) && r >= 0; i++)
                if (strings[i].value)
                        r = json_add_string(o, strings[i].key, strings[i].value);
        return r;
}

static int add_numbers(json_object *o, const Sandbox *s) {
        const struct {
                const char *key;
                uint64_t value;
        } numbers[] = {
                { "owner-uid", s->owner_uid },
                { "memory", s->mem_bytes },
                { "boot-memory", s->boot_mem_bytes },
                { "plug", s->plug_bytes },
                { "cpus", s->cpus },
                { "disk", s->disk_bytes },
                { "cpu-quota", s->cpu_quota_usec },
                { "timeout", s->timeout_usec },
                { "idle-timeout", s->idle_timeout_usec },
                { "auto-resume", s->auto_resume },
                { "untold", s->untold },
                { "checkpoint", s->checkpoint_usec },
                { "created", s->created_usec },
                { "deadline", s->deadline_usec },
                { "deadline-boottime", s->priv->deadline_boot_usec },
                { "vmm-pid", (uint64_t) s->vmm_pid },
                { "vmm-start-time", s->priv->vmm_start_time },
                { "vmm-uid", s->vmm_uid },
                { "restored", s->restored },
                { "disk-layers", s->priv->n_disk_layers },
                { "memory-layers", s->priv->n_memory_layers },
                { "builder", s->builder },
                { "checkpoint-number", s->priv->checkpoint_number },
                { "slot", s->slot },
                { "mtu", s->priv->mtu },
        };
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(numbers) && r >= 0; i++)
                r = json_add_u64(o, numbers[i].key, numbers[i].value);
        return r;
}

static int add_labels(json_object *o, const Sandbox *s) {
        if (!s->labels)
                return 0;
        json_object *a = json_object_new_array();
        int r = json_add(o, "labels", a);

        for (char **l = s->labels; r >= 0 && *l; l++) {
                json_object *item = json_object_new_string(*l);
                if (!item || json_object_array_add(a, item) < 0)
                        r = -ENOMEM;
        }
        return r;
}

static int add_policy(json_object *o, const Sandbox *s) {
        json_object *p;

        int r = sandbox_policy_to_json(loaded_policy_rules(s->policy), &p);
        return r < 0 ? r : json_add(o, "policy", p);
}

typedef struct LimitKey {
        const char *name;
        size_t offset;
        uint64_t max;
} LimitKey;

static const LimitKey limit_keys[] = {
        { "bytes-out", offsetof(NetLimits, bytes_out), UINT64_MAX },
        { "bytes-in", offsetof(NetLimits, bytes_in), UINT64_MAX },
        { "packets-out", offsetof(NetLimits, packets_out), UINT32_MAX },
        { "packets-in", offsetof(NetLimits, packets_in), UINT32_MAX },
        { "connections-new", offsetof(NetLimits, flows_new), UINT32_MAX },
        { "connections-open", offsetof(NetLimits, flows_open), UINT32_MAX },
};

static uint64_t get_limit(const NetLimits *l, const LimitKey *k) {
        const uint8_t *field = (const uint8_t *) l + k->offset;

        return k->max == UINT64_MAX ? *(const uint64_t *) (const void *) field : *(const uint32_t *) (const void *) field;
}

static void set_limit(NetLimits *l, const LimitKey *k, uint64_t value) {
        uint8_t *field = (uint8_t *) l + k->offset;

        if (k->max == UINT64_MAX)
                *(uint64_t *) (void *) field = value;
        else
                *(uint32_t *) (void *) field = (uint32_t) value;
}

/* Those that are its own. */
static int add_limits(json_object *o, const Sandbox *s) {
        json_object *l = json_object_new_object();
        int r = json_add(o, "network-limits", l);

        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(limit_keys); i++) {
                uint64_t value = get_limit(&s->net_limits, &limit_keys[i]);
                if (value > 0)
                        r = json_add_u64(l, limit_keys[i].name, value);
        }
        return r;
}

static int format(const Sandbox *s, SandboxState state, const Snapshot *disk, const Snapshot *memory, char **ret) {
        _cleanup_json_ json_object *o = json_object_new_object();

        if (!o)
                return -ENOMEM;
        int r = add_strings(o, s, state, disk, memory);
        if (r >= 0)
                r = add_numbers(o, s);
        if (r >= 0)
                r = add_labels(o, s);
        if (r >= 0)
                r = add_policy(o, s);
        if (r >= 0)
                r = add_limits(o, s);
        if (r < 0)
                return r;
        const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
        *ret = text ? strdup(text) : NULL;
        return *ret ? 0 : -ENOMEM;
}

int sandbox_save(const Sandbox *s) {
        _cleanup_free_ char *path = sandbox_path(s, "state.json"), *text = NULL;

        if (!path)
                return -ENOMEM;
        int r = format(s, s->state, s->disk_top, s->memory_top, &text);
        return r < 0 ? r : write_file(path, text);
}

static int on_save_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        sandbox_save_soon(userdata);
        return 0;
}

static int arm_save_timer(Sandbox *s) {
        sd_event_source **timer = &s->priv->save_timer;

        if (!*timer)
                return sd_event_add_time_relative(s->manager->event, timer, CLOCK_MONOTONIC, SAVE_AGAIN_USEC, 0, on_save_timer, s);
        int r = sd_event_source_set_time_relative(*timer, SAVE_AGAIN_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(*timer, SD_EVENT_ONESHOT);
}

void sandbox_save_soon(Sandbox *s) {
        bool again = s->priv->save_timer;

        /* Nobody will take it over. */
        if (s->priv->exited || sandbox_on_disk(s)) {
                s->priv->save_timer = sd_event_source_disable_unref(s->priv->save_timer);
                return;
        }
        int r = sandbox_save(s);
        if (r < 0 && !again)
                log_warning_errno(r, "Sandbox %s: failed to save its state, trying again. A cubed that is restarted before that "
                                  "knows it as it was before: %m", s->id);
        if (r < 0)
                r = arm_save_timer(s);
        else if (again) {
                log_info("Sandbox %s: its state is saved", s->id);
                s->priv->save_timer = sd_event_source_disable_unref(s->priv->save_timer);
        }
        if (r < 0)
                log_error_errno(r, "Sandbox %s: saving its state can't be tried again: %m", s->id);
}

int sandbox_format_kept(const Sandbox *s, SandboxState state, const Snapshot *on, char **ret) {
        return format(s, state, on, on && on->has_memory ? on : NULL, ret);
}

static int load_strings(Sandbox *s, json_object *o) {
        _cleanup_free_ char *state = NULL, *id = NULL, *tenant = NULL;
        const struct {
                const char *key;
                char **field;
        } strings[] = {
                { "id", &id },
                { "state", &state },
                { "tenant", &tenant },
                { "template", &s->template_id },
                { "template-name", &s->template_name },
                { "hostname", &s->hostname },
                { "request-id", &s->request_id },
                { "bound-client", &s->bound_client },
                { "kernel-release", &s->kernel_release },
        };
        int r = 0;

        for (size_t i = 0; i < ELEMENTSOF(strings) && r >= 0; i++)
                r = json_dup_optional(o, strings[i].key, STRING_MAX, strings[i].field);
        if (r < 0)
                return r;
        /* Those of a cubed that knew no tenants have none. */
        if (tenant && !tenant_name_valid(tenant))
                return -EBADMSG;
        tenant_name_copy(s->tenant, tenant);
        s->state = sandbox_state_from_string(state);
        return s->state < 0 || !id || !streq(id, s->id) || !s->template_id || !s->hostname ? -EBADMSG : 0;
}

/* The snapshots that it ran on, which hold no use of ours meanwhile. */
static int load_top(Sandbox *s, json_object *o, const char *key, Snapshot **ret) {
        _cleanup_free_ char *id = NULL;

        int r = json_dup_optional(o, key, STRING_MAX, &id);
        if (r < 0 || !id)
                return r;
        *ret = s->manager->snapshots ? snapshot_store_find(s->manager->snapshots, id) : NULL;
        if (!*ret)
                s->priv->layers_unknown = true;
        return 0;
}

static int load_layer_numbers(Sandbox *s, json_object *o) {
        uint64_t restored, disk, memory;

        /* A cubed that knew no snapshots wrote it. */
        if (!json_object_object_get_ex(o, "restored", NULL))
                return 0;
        int r = json_get_u64(o, "restored", 0, 1, &restored);
        if (r >= 0)
                r = json_get_u64(o, "disk-layers", 0, VMM_DISK_LAYERS_MAX, &disk);
        if (r >= 0)
                r = json_get_u64(o, "memory-layers", 0, SNAPSHOT_LAYERS_MAX, &memory);
        if (r < 0)
                return r;
        s->restored = restored;
        s->priv->n_disk_layers = (unsigned) disk;
        s->priv->n_memory_layers = (unsigned) memory;
        return 0;
}

/* A snapshot whose use is settled once its VMM has been asked: it must not go before. */
static int load_pending(Sandbox *s, json_object *o, const char *key, char ret_id[static 21], Snapshot **ret) {
        _cleanup_free_ char *id = NULL;

        int r = json_dup_optional(o, key, STRING_MAX, &id);
        if (r < 0 || !id)
                return r;
        if (!sandbox_id_valid(id))
                return -EBADMSG;
        memcpy(ret_id, id, strlen(id) + 1);
        *ret = s->manager->snapshots ? snapshot_store_find(s->manager->snapshots, id) : NULL;
        if (*ret)
                snapshot_use(*ret);
        return 0;
}

static int load_checkpoints(Sandbox *s, json_object *o) {
        /* A cubed that knew none wrote it. */
        if (!json_object_object_get_ex(o, "checkpoint", NULL))
                return 0;
        int r = json_get_u64(o, "checkpoint", 0, UINT64_MAX, &s->checkpoint_usec);
        return r < 0 ? r : json_get_u64(o, "checkpoint-number", 0, UINT64_MAX, &s->priv->checkpoint_number);
}

static int load_layers(Sandbox *s, json_object *o) {
        Snapshot *disk = NULL, *memory = NULL;

        int r = load_layer_numbers(s, o);
        if (r >= 0)
                r = load_top(s, o, "disk-top", &disk);
        if (r >= 0)
                r = load_top(s, o, "memory-top", &memory);
        if (r >= 0)
                r = load_pending(s, o, "capture", s->priv->capture_id, &s->priv->pending[0]);
        if (r >= 0)
                r = load_pending(s, o, "rollback", s->priv->rollback_id, &s->priv->pending[1]);
        if (r < 0)
                return r;
        sandbox_set_tops(s, disk, memory);
        return 0;
}

/* Those that a cubed of before did not know. */
static int load_ends(Sandbox *s, json_object *o) {
        _cleanup_free_ char *end = NULL;
        uint64_t auto_resume = 0, untold = 0;
        int r = 0;

        if (json_object_object_get_ex(o, "idle-timeout", NULL))
                r = json_get_u64(o, "idle-timeout", 1, UINT64_MAX, &s->idle_timeout_usec);
        if (r >= 0 && json_object_object_get_ex(o, "auto-resume", NULL))
                r = json_get_u64(o, "auto-resume", 0, 1, &auto_resume);
        s->auto_resume = auto_resume;
        if (r >= 0 && json_object_object_get_ex(o, "untold", NULL))
                r = json_get_u64(o, "untold", 0, 1, &untold);
        s->untold = untold;
        if (r >= 0)
                r = json_dup_optional(o, "on-timeout", STRING_MAX, &end);
        if (r < 0 || !end)
                return r;
        s->on_timeout = sandbox_end_from_string(end);
        return s->on_timeout < 0 ? -EBADMSG : 0;
}

static int load_address(json_object *o, const char *key, int family, char *ret, size_t size) {
        uint8_t binary[sizeof(struct in6_addr)];
        const char *text;

        if (!json_object_object_get_ex(o, key, NULL))
                return 0;
        int r = json_get_string(o, key, size - 1, &text);
        if (r < 0)
                return r;
        if (inet_pton(family, text, binary) <= 0)
                return -EBADMSG;
        (void) snprintf(ret, size, "%s", text);
        return 0;
}

static int load_network_limits(Sandbox *s, json_object *o) {
        json_object *l;
        uint64_t value;

        int r = json_get(o, "network-limits", json_type_object, &l);
        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(limit_keys); i++) {
                if (!json_object_object_get_ex(l, limit_keys[i].name, NULL))
                        continue;
                r = json_get_u64(l, limit_keys[i].name, 1, limit_keys[i].max, &value);
                if (r >= 0)
                        set_limit(&s->net_limits, &limit_keys[i], value);
        }
        return r;
}

static int load_policy(Sandbox *s, json_object *o) {
        _cleanup_(sandbox_policy_done) SandboxPolicy rules = SANDBOX_POLICY_INIT;
        json_object *p;

        /* A cubed that knew no policies wrote it: nothing passed. */
        int r = json_object_object_get_ex(o, "policy", &p) ? sandbox_policy_from_json(p, &rules) : 0;
        return r < 0 ? r : host_network_get_policy(s->manager->network, &rules, &s->policy);
}

static int load_network(Sandbox *s, json_object *o) {
        uint64_t slot, mtu;

        int r = load_policy(s, o);
        if (r < 0 || !json_object_object_get_ex(o, "slot", NULL))
                return r;
        r = json_get_u64(o, "slot", 0, NET_SLOTS_MAX - 1, &slot);
        if (r >= 0)
                r = json_get_u64(o, "mtu", 0, UINT16_MAX, &mtu);
        if (r >= 0)
                r = load_address(o, "address", AF_INET, s->address4, sizeof(s->address4));
        if (r >= 0)
                r = load_address(o, "address6", AF_INET6, s->address6, sizeof(s->address6));
        if (r >= 0)
                r = load_network_limits(s, o);
        if (r < 0)
                return r;
        s->slot = (uint32_t) slot;
        s->priv->mtu = (uint32_t) mtu;
        return 0;
}

/* kept: it has no VMM. */
static int load_numbers(Sandbox *s, json_object *o, bool kept) {
        uint64_t owner, cpus, pid, uid;
        const JsonNumber numbers[] = {
                { "owner-uid", 0, UINT32_MAX - 1, &owner },
                { "memory", 1, UINT64_MAX, &s->mem_bytes },
                { "boot-memory", 1, UINT64_MAX, &s->boot_mem_bytes },
                { "plug", 0, UINT64_MAX, &s->plug_bytes },
                { "cpus", 1, 255, &cpus },
                { "disk", 0, UINT64_MAX, &s->disk_bytes },
                { "cpu-quota", 1, UINT64_MAX, &s->cpu_quota_usec },
                { "timeout", 1, UINT64_MAX, &s->timeout_usec },
                { "created", 0, UINT64_MAX, &s->created_usec },
                { "deadline", 0, UINT64_MAX, &s->deadline_usec },
                { "deadline-boottime", 0, UINT64_MAX, &s->priv->deadline_boot_usec },
                { "vmm-pid", kept ? 0 : 1, INT32_MAX, &pid },
                { "vmm-start-time", 0, UINT64_MAX, &s->priv->vmm_start_time },
                { "vmm-uid", kept ? 0 : 1, UINT32_MAX - 1, &uid },
        };

        int r = json_get_numbers(o, numbers, ELEMENTSOF(numbers));
        if (r < 0)
                return r;
        s->owner_uid = (uid_t) owner;
        s->cpus = (uint32_t) cpus;
        s->vmm_pid = (pid_t) pid;
        s->vmm_uid = (uint32_t) uid;
        return load_ends(s, o);
}

/* A file of a cubed that had none does not say. */
static int load_builder(Sandbox *s, json_object *o) {
        uint64_t builder = 0;
        int r = 0;

        if (json_object_object_get_ex(o, "builder", NULL))
                r = json_get_u64(o, "builder", 0, 1, &builder);
        s->builder = builder > 0;
        return r;
}

static int load_labels(Sandbox *s, json_object *o) {
        json_object *a;

        if (!json_object_object_get_ex(o, "labels", &a))
                return 0;
        if (!json_object_is_type(a, json_type_array) || json_object_array_length(a) > LABELS_MAX)
                return -EBADMSG;
        size_t n = json_object_array_length(a);
        s->labels = new0(char *, n + 1);
        if (!s->labels)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                json_object *item = json_object_array_get_idx(a, i);
                if (!json_object_is_type(item, json_type_string))
                        return -EBADMSG;
                s->labels[i] = strdup(json_object_get_string(item));
                if (!s->labels[i])
                        return -ENOMEM;
        }
        return 0;
}

static int parse(Sandbox *s, const char *text, size_t size, bool kept) {
        _cleanup_json_ json_object *o = NULL;

        int r = json_parse_strict(text, size, &o);
        if (r >= 0)
                r = load_strings(s, o);
        if (r >= 0)
                r = load_numbers(s, o, kept);
        if (r >= 0)
                r = load_builder(s, o);
        if (r >= 0)
                r = load_labels(s, o);
        if (r >= 0)
                r = load_layers(s, o);
        if (r >= 0)
                r = load_checkpoints(s, o);
        if (r >= 0)
                r = load_network(s, o);
        s->state_changed_usec = s->created_usec;
        return r;
}

static int load(Manager *m, const char *id, int dir_fd, const char *path, bool kept, Sandbox **ret) {
        _cleanup_(sandbox_freep) Sandbox *s = NULL;
        _cleanup_free_ char *text = NULL;
        size_t size;

        int r = sandbox_new(m, id, &s);
        if (r < 0)
                return r;
        r = read_file(dir_fd, path, STATE_FILE_MAX, &text, &size);
        if (r >= 0)
                r = parse(s, text, size, kept);
        /* Not one that was taken out of the range. */
        if (r < 0 || kept)
                s->vmm_uid = 0;
        if (r >= 0)
                *ret = TAKE_PTR(s);
        return r;
}

int sandbox_load(Manager *m, const char *id, Sandbox **ret) {
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s/sandbox/%s/state.json", m->config.runtime_directory, id) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        return load(m, id, AT_FDCWD, path, false, ret);
}

/* What only makes sense with a VMM is as if there had never been one. */
static void forget_vmm(Sandbox *s) {
        s->vmm_pid = 0;
        s->deadline_usec = s->priv->deadline_boot_usec = UINT64_MAX;
        s->priv->vmm_start_time = 0;
        s->priv->capture_id[0] = s->priv->rollback_id[0] = 0;
        sandbox_release_pending(s);
        s->priv->n_disk_layers = s->priv->n_memory_layers = 0;
}

int sandbox_load_kept(Manager *m, const char *id, int dir_fd, Sandbox **ret) {
        _cleanup_(sandbox_freep) Sandbox *s = NULL;

        int r = load(m, id, dir_fd, SANDBOX_KEPT_FILE, true, &s);
        if (r < 0)
                return r;
        if (s->state != SANDBOX_PAUSED && s->state != SANDBOX_FAILED)
                return -EBADMSG;
        forget_vmm(s);
        *ret = TAKE_PTR(s);
        return 0;
}
