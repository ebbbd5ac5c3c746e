/* SPDX-License-Identifier: Apache-2.0 */

/* How many snapshots one owner may keep, and how much disk for them: a tenant that has a name by itself, else the uid. Root
 * may keep any. Counted are those that were asked for, with those under way; of disk all that is kept of his sandboxes, also
 * what nobody asked for, as layers, checkpoints and pauses, of which there are no more than his sandboxes allow. */

#include "base/parse.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

typedef struct Kept {
        uint32_t n;
        uint64_t bytes;
} Kept;

static uint64_t bytes_of(const Snapshot *n) {
        uint64_t bytes = 0;

        for (size_t i = 0; i < _SNAPSHOT_FILE_MAX; i++)
                bytes += n->file_bytes[i];
        return bytes;
}

static Kept count(const Sandbox *s) {
        const SnapshotStore *store = s->manager->snapshots;
        Kept k = {};

        for (size_t i = 0; i < store->n_snapshots; i++) {
                const Snapshot *n = store->snapshots[i];
                if (n->kind == SNAPSHOT_TEMPLATE || !tenant_same(n->owner_uid, n->tenant, s->owner_uid, s->tenant))
                        continue;
                k.n += n->kind == SNAPSHOT_USER;
                k.bytes += bytes_of(n);
        }
        for (size_t i = 0; i < s->manager->n_sandboxes; i++) {
                const Sandbox *other = s->manager->sandboxes[i];
                if (tenant_same(other->owner_uid, other->tenant, s->owner_uid, s->tenant))
                        k.n += other->priv->n_snapshots_asked;
        }
        return k;
}

int sandbox_check_snapshot_quota(const Sandbox *s, sd_bus_error *error) {
        const Config *c = &s->manager->config;
        char a[FORMAT_SIZE_MAX], b[FORMAT_SIZE_MAX], whom[TENANT_NAME_MAX + sizeof("Tenant ")];
        bool tenant = *s->tenant;

        if (!tenant && s->owner_uid == 0)
                return 0;
        const char *key = tenant ? "Tenant" : "User";
        uint32_t n_max = tenant ? c->max_snapshots_per_tenant : c->max_snapshots_per_user;
        uint64_t bytes_max = tenant ? c->max_snapshot_bytes_per_tenant : c->max_snapshot_bytes_per_user;
        const Kept k = count(s);

        if (tenant)
                (void) snprintf(whom, sizeof(whom), "Tenant %s", s->tenant);
        else
                (void) snprintf(whom, sizeof(whom), "Uid %u", (unsigned) s->owner_uid);
        if (n_max != CONFIG_UNLIMITED && k.n >= n_max)
                return sd_bus_error_setf(error, BUS_ERROR_QUOTA_EXCEEDED,
                                         "%s has %u snapshots already, as many as MaxSnapshotsPer%s= allows; remove one first", whom, k.n, key);
        if (k.bytes >= bytes_max)
                return sd_bus_error_setf(error, BUS_ERROR_QUOTA_EXCEEDED,
                                         "What is saved of the sandboxes of %s takes %s, and MaxSnapshotBytesPer%s= allows %s; remove snapshots first",
                                         whom, format_size(a, k.bytes), key, format_size(b, bytes_max));
        return 0;
}
