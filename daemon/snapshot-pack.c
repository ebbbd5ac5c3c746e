/* SPDX-License-Identifier: Apache-2.0 */

/* The saved guest of a template, as it goes from one host to another. */

#include "base/parse.h"
#include "daemon/snapshot-private.h"
#include "daemon/template.h"

json_object *snapshot_describe(const Snapshot *s) {
        return snapshot_to_json(s);
}

/* What sandboxes are made by must be what a build here could have made. */
static bool shape_is_sane(const Snapshot *s, const Template *t) {
        return s->mem_bytes <= TEMPLATE_MEMORY_MAX && s->mem_bytes % MIB(1) == 0 && s->boot_mem_bytes <= s->mem_bytes &&
                s->boot_mem_bytes % MIB(1) == 0 && s->plug_bytes <= TEMPLATE_MEMORY_MAX && s->plug_bytes % MIB(1) == 0 &&
                s->disk_bytes == t->disk_bytes && s->cpus <= TEMPLATE_CPUS_MAX;
}

int snapshot_adopt(Snapshot *s, const char *text, size_t size, const Template *t, const char **ret_reason) {
        _cleanup_(snapshot_free_memoryp) Snapshot *from = snapshot_alloc();

        *ret_reason = "out of memory";
        if (!from)
                return -ENOMEM;
        int r = snapshot_parse(text, size, from, ret_reason);
        if (r < 0)
                return r;
        *ret_reason = "the guest in it is not one that a template starts from";
        if (from->kind != SNAPSHOT_TEMPLATE || !from->has_memory || !shape_is_sane(from, t))
                return -EBADMSG;

        s->has_memory = true;
        memcpy(s->uuid, from->uuid, sizeof(s->uuid));
        s->owner_uid = t->owner_uid;
        tenant_name_copy(s->tenant, t->tenant);
        s->mem_bytes = from->mem_bytes;
        s->boot_mem_bytes = from->boot_mem_bytes;
        s->plug_bytes = from->plug_bytes;
        s->disk_bytes = from->disk_bytes;
        s->cpu_quota_usec = from->cpu_quota_usec;
        s->cpus = from->cpus;
        s->template_id = strdup(t->id);
        s->template_name = strdup(t->name);
        *ret_reason = "out of memory";
        if (!s->template_id || !s->template_name)
                return -ENOMEM;

        /* The headers of its files are looked at by snapshot_publish(), which can't give a reason. */
        *ret_reason = "the guest's files are not those of one another";
        r = snapshot_check_files(s);
        return r >= 0 && !snapshot_memory_fits(s, NULL) ? -EBADMSG : r;
}
