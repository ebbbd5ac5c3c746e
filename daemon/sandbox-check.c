/* SPDX-License-Identifier: Apache-2.0 */

/* What a create may ask for, and what it gets when it does not say. Nothing here waits or changes
 * anything but the sandbox in the making. */

#include <stdio.h>

#include "base/parse.h"
#include "daemon/capture.h"
#include "daemon/host-network.h"
#include "daemon/sandbox-private.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"

/* What a VMM can be built with: vmm/build-config.h. */
#define MEM_STEP MIB(2)
#define MEM_MIN MIB(64)
#define PLUG_STEP MIB(128)
#define DISK_STEP 4096U
#define LABELS_MAX 64U
/* All together, as KEY=VALUE. They are in each listing of properties, and in a state file that a restarted cubed reads
 * up to a size of its own: 6 bytes for one byte in JSON. */
#define LABELS_BYTES_MAX 16384U

static int set_string(char **field, const char *value) {
        if (!value)
                return 0;
        *field = strdup(value);
        return *field ? 0 : -ENOMEM;
}

int sandbox_check_memory(const Manager *m, const Template *t, uint64_t *mem_bytes, sd_bus_error *error) {
        char a[FORMAT_SIZE_MAX], b[FORMAT_SIZE_MAX];
        uint64_t host = m->priv->host_mem_bytes, max = m->config.max_mem_bytes, floor = MEM_MIN;
        uint64_t mem = ALIGN_UP(MIN(*mem_bytes, UINT64_MAX - MEM_STEP), MEM_STEP);

        if (t)
                floor = MAX(floor, template_floor(t));
        if (mem < floor && !t)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "Memory of %s is too little: a guest needs at least %s", format_size(a, mem),
                                         format_size(b, floor));
        if (mem < floor)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "Memory of %s is too little: kernel %s of template %s needs at least %s",
                                         format_size(a, mem), t->kernel.release, t->name,
                                         format_size(b, ALIGN_UP(floor, MEM_STEP)));
        if (mem > host)
                return sd_bus_error_setf(error, BUS_ERROR_NO_RESOURCES,
                                         "Memory of %s is more than this host has (%s)", format_size(a, mem),
                                         format_size(b, host));
        if (max > 0 && mem > max)
                return sd_bus_error_setf(error, BUS_ERROR_QUOTA_EXCEEDED,
                                         "Memory of %s is more than MaxMemoryPerSandbox=%s allows", format_size(a, mem),
                                         format_size(b, max));
        if (mem > TEMPLATE_MEMORY_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "Memory of %s is more than a sandbox can have (%s)", format_size(a, mem),
                                         format_size(b, TEMPLATE_MEMORY_MAX));
        *mem_bytes = mem;
        return 0;
}

/* What a create that does not say gets: as the sandbox was whose snapshot it is, else as the template says. A template's
 * own snapshot is of a guest that may have been built with less. */
typedef struct Defaults {
        uint64_t mem_bytes, disk_bytes, cpu_quota_usec;
        uint32_t cpus;
} Defaults;

static Defaults get_defaults(const Template *t, const Snapshot *n) {
        if (!n || n->kind == SNAPSHOT_TEMPLATE)
                return (Defaults) { .mem_bytes = t->mem_bytes, .disk_bytes = MAX(t->disk_bytes, n ? n->disk_bytes : 0), .cpus = t->cpus };
        return (Defaults) { n->mem_bytes, n->disk_bytes, n->cpu_quota_usec, n->cpus };
}

/* Its shape is that of the guest that was saved; what is beyond has to be plugged, what is beneath does not come back. */
static bool can_restore(const Snapshot *n, uint64_t mem_bytes, uint32_t cpus) {
        if (!n->has_memory || cpus < n->cpus)
                return false;
        return mem_bytes == n->mem_bytes ||
                (mem_bytes >= n->boot_mem_bytes && mem_bytes - n->boot_mem_bytes <= n->plug_bytes);
}

static int apply_memory(Sandbox *s, uint64_t mem, const Template *t, const Snapshot *n, sd_bus_error *error) {
        const Config *c = &s->manager->config;

        int r = sandbox_check_memory(s->manager, t, &mem, error);
        if (r < 0)
                return r;

        s->mem_bytes = s->boot_mem_bytes = mem;
        s->plug_bytes = ALIGN_DOWN(MIN(c->grow_mem_bytes, TEMPLATE_MEMORY_MAX - mem), (uint64_t) PLUG_STEP);
        s->restored = n && can_restore(n, mem, s->cpus);
        if (s->restored) {
                s->boot_mem_bytes = n->boot_mem_bytes;
                s->plug_bytes = n->plug_bytes;
                s->priv->restored_mem_bytes = n->mem_bytes;
        }
        return 0;
}

static int apply_cpus(Sandbox *s, const SandboxSpec *spec, const Defaults *d, sd_bus_error *error) {
        s->cpus = spec->cpus > 0 ? spec->cpus : d->cpus;
        if (s->cpus > TEMPLATE_CPUS_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "%u CPUs are too many: a sandbox has 1 to %u",
                                         s->cpus, TEMPLATE_CPUS_MAX);

        s->cpu_quota_usec = spec->cpu_quota_usec;
        if (s->cpu_quota_usec == 0 && s->cpus == d->cpus)
                s->cpu_quota_usec = d->cpu_quota_usec;
        if (s->cpu_quota_usec == 0)
                s->cpu_quota_usec = s->cpus * USEC_PER_SEC;
        if (s->cpu_quota_usec < USEC_PER_SEC / 100 || s->cpu_quota_usec > 1024 * USEC_PER_SEC)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "A CPU quota lies between 1%% and 102400%%");
        return 0;
}

static int apply_disk(Sandbox *s, uint64_t disk, const Template *t, const Snapshot *n, sd_bus_error *error) {
        char a[FORMAT_SIZE_MAX], b[FORMAT_SIZE_MAX];

        if (disk > TEMPLATE_DISK_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "A disk of %s is more than can be (%s)",
                                         format_size(a, disk), format_size(b, TEMPLATE_DISK_MAX));
        disk = ALIGN_UP(disk, (uint64_t) DISK_STEP);
        if (disk < t->file_bytes[TEMPLATE_FILE_DISK])
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "A disk of %s is smaller than that of template %s (%s)", format_size(a, disk),
                                         t->name, format_size(b, t->file_bytes[TEMPLATE_FILE_DISK]));
        if (n && disk < n->disk_bytes)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "A disk of %s is smaller than that of %s %s (%s)", format_size(a, disk),
                                         n->kind == SNAPSHOT_TEMPLATE ? "template" : "snapshot",
                                         n->kind == SNAPSHOT_TEMPLATE ? t->name : n->id, format_size(b, n->disk_bytes));
        s->disk_bytes = disk;
        return 0;
}

/* Those of a user's tenants are not his: each has its own quota. */
static int check_quota(const Sandbox *s, const SandboxSpec *spec, sd_bus_error *error) {
        const Manager *m = s->manager;
        uid_t owner = spec->owner_uid;
        uint32_t own = 0;

        for (size_t i = 0; i < m->n_sandboxes; i++)
                own += tenant_same(m->sandboxes[i]->owner_uid, m->sandboxes[i]->tenant, owner, spec->tenant);
        if (m->config.max_sandboxes != CONFIG_UNLIMITED && m->n_sandboxes >= m->config.max_sandboxes)
                return sd_bus_error_setf(error, BUS_ERROR_QUOTA_EXCEEDED,
                                         "This host has %zu sandboxes already, as many as MaxSandboxes= allows; end one first",
                                         m->n_sandboxes);
        if (!isempty(spec->tenant)) {
                if (own < m->config.max_sandboxes_per_tenant)
                        return 0;
                return sd_bus_error_setf(error, BUS_ERROR_QUOTA_EXCEEDED,
                                         "Tenant %s has %u sandboxes already, as many as MaxSandboxesPerTenant= allows; end one first",
                                         spec->tenant, own);
        }
        if (owner != 0 && m->config.max_sandboxes_per_user != CONFIG_UNLIMITED &&
            own >= m->config.max_sandboxes_per_user)
                return sd_bus_error_setf(error, BUS_ERROR_QUOTA_EXCEEDED,
                                         "Uid %u has %u sandboxes already, as many as MaxSandboxesPerUser= allows; end one first",
                                         (unsigned) owner, own);
        return 0;
}

static int apply_strings(Sandbox *s, const SandboxSpec *spec) {
        size_t n = 0, bytes = 0;

        if (asprintf(&s->template_name, "%s:%s", spec->template->name, spec->template->tag) < 0) {
                s->template_name = NULL;
                return -ENOMEM;
        }
        int r = set_string(&s->template_id, spec->template->id);
        if (r >= 0)
                r = set_string(&s->hostname, isempty(spec->hostname) ? s->id : spec->hostname);
        if (r >= 0)
                r = set_string(&s->request_id, spec->request_id);
        if (r >= 0)
                r = set_string(&s->bound_client, spec->bound_client);
        if (r < 0 || !spec->labels)
                return r;

        for (; spec->labels[n]; n++) {
                bytes += strlen(spec->labels[n]);
                if (n >= LABELS_MAX || bytes > LABELS_BYTES_MAX)
                        return -E2BIG;
        }
        s->labels = new0(char *, n + 1);
        if (!s->labels)
                return -ENOMEM;
        for (size_t i = 0; i < n && r >= 0; i++)
                r = set_string(s->labels + i, spec->labels[i]);
        return r;
}

/* Those of one chain: what disk and memory stand on is of the same instant. */
static void apply_layers(Sandbox *s, Snapshot *n) {
        Snapshot *chain[VMM_DISK_LAYERS_MAX];

        if (!n)
                return;
        sandbox_set_tops(s, n, s->restored ? n : NULL);
        s->priv->n_disk_layers = (unsigned) MAX(snapshot_disk_chain(n, chain, VMM_DISK_LAYERS_MAX), 0);
        if (s->restored)
                s->priv->n_memory_layers = (unsigned) MAX(snapshot_memory_chain(n, chain, SNAPSHOT_LAYERS_MAX), 0);
}

/* Whom it may talk to, when it is not said: a builder to nobody. */
static int apply_network(Sandbox *s, const SandboxSpec *spec) {
        HostNetwork *n = s->manager->network;
        const Template *t = spec->template;

        s->net_limits = spec->net_limits;
        if (!spec->policy && !spec->builder && t->has_policy)
                return host_network_get_policy(n, &t->policy, &s->policy);
        bool internet = !spec->builder && s->manager->config.default_internet;
        s->policy = loaded_policy_ref(spec->policy ?: internet ? host_network_internet_policy(n) : host_network_deny_policy(n));
        return 0;
}

int sandbox_apply_spec(Sandbox *s, const SandboxSpec *spec, sd_bus_error *error) {
        const Template *t = spec->template;
        Snapshot *n = spec->snapshot;

        if (!t)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "A sandbox needs a template");
        if (n && (!n->template_id || !streq(n->template_id, t->id)))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Snapshot %s does not stand on template %s", n->id, t->id);
        if (!n && s->manager->snapshots)
                n = snapshot_store_find_template(s->manager->snapshots, t->id);

        Defaults d = get_defaults(t, n);
        /* A build has limits of its own, and must not fail because its owner works. */
        int r = spec->builder ? 0 : check_quota(s, spec, error);
        if (r >= 0)
                r = apply_cpus(s, spec, &d, error);
        if (r >= 0)
                r = apply_memory(s, spec->mem_bytes > 0 ? spec->mem_bytes : d.mem_bytes, t, n, error);
        if (r >= 0)
                r = apply_disk(s, spec->disk_bytes > 0 ? spec->disk_bytes : d.disk_bytes, t, n, error);
        if (r < 0)
                return r;

        apply_layers(s, n);
        s->owner_uid = spec->owner_uid;
        tenant_name_copy(s->tenant, spec->tenant);
        s->builder = spec->builder;
        s->timeout_usec = spec->timeout_usec > 0 ? spec->timeout_usec : s->manager->config.default_timeout_usec;
        s->idle_timeout_usec = spec->idle_timeout_usec > 0 ? spec->idle_timeout_usec : s->manager->config.default_idle_timeout_usec;
        s->on_timeout = spec->on_timeout;
        s->auto_resume = spec->auto_resume;
        s->untold = spec->untold;
        s->checkpoint_usec = spec->checkpoint_usec;
        r = apply_network(s, spec);
        if (r >= 0)
                r = apply_strings(s, spec);
        if (r == -E2BIG)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Too many labels: there can be %u, of %u bytes together",
                                         LABELS_MAX, LABELS_BYTES_MAX);
        return r < 0 ? sd_bus_error_set_errno(error, r) : 0;
}
