/* SPDX-License-Identifier: Apache-2.0 */

/* Resuming: the way of a create under the old id, with a new VMM, from the snapshot that it was paused in, or, without its
 * memory, by a boot from the disk of that. What comes to nothing leaves it failed, as it was on disk, to be tried again. */

#include "base/parse.h"
#include "daemon/audit.h"
#include "daemon/capture.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

/* As GrowMemory= makes it: sandbox-check.c. */
#define PLUG_STEP MIB(128)

static void on_made(Sandbox *s, const sd_bus_error *error, void *userdata) {
        sandbox_tell_waiters(s, &s->priv->change_waiters, error);
}

static int check(const Sandbox *s, sd_bus_error *error) {
        if (s->priv->layers_unknown || !s->disk_top)
                return sd_bus_error_setf(error, BUS_ERROR_INTERNAL, "Sandbox %s can't be resumed: the snapshot that it was paused in "
                                         "is gone; remove it: cubectl kill %s", s->id, s->id);
        if (!s->priv->template)
                return sd_bus_error_setf(error, BUS_ERROR_TEMPLATE_INVALID, "Sandbox %s can't be resumed: its template %s is gone; put "
                                         "it back, or remove the sandbox: cubectl kill %s", s->id, s->template_id, s->id);
        return 0;
}

/* A boot begins with all of its memory. */
static void reshape(Sandbox *s) {
        uint64_t most = s->boot_mem_bytes + s->plug_bytes;

        s->boot_mem_bytes = s->mem_bytes;
        s->plug_bytes = ALIGN_DOWN(most - MIN(most, s->mem_bytes), (uint64_t) PLUG_STEP);
}

void sandbox_stand_as_kept(Sandbox *s) {
        Snapshot *n = s->disk_top;

        if (!n || !n->has_memory || s->memory_top)
                return;
        sandbox_set_tops(s, n, n);
        s->boot_mem_bytes = n->boot_mem_bytes;
        s->plug_bytes = n->plug_bytes;
}

static int start(Sandbox *s, bool memory, sd_bus_error *error) {
        struct SandboxPrivate *p = s->priv;
        SandboxState before = s->state;

        if (!memory)
                sandbox_set_tops(s, s->disk_top, NULL);
        s->restored = s->memory_top;
        p->restored_mem_bytes = s->mem_bytes;
        if (!s->restored)
                reshape(s);
        sandbox_count_layers(s);
        p->was_running = false;
        p->kept_as = SANDBOX_FAILED;
        p->create_done = on_made;
        sandbox_set_state(s, SANDBOX_RESUMING);
        int r = sandbox_start(s, error);
        if (r >= 0)
                return 0;
        audit_resume_failed(s->manager->audit, s, strempty(error->message));
        sandbox_unmake(s);
        sandbox_stand_as_kept(s);
        p->kept_as = SANDBOX_CREATING;
        p->create_done = NULL;
        sandbox_set_state(s, before);
        /* What it was parked with went. */
        sandbox_park_later(s);
        return r;
}

int sandbox_resume(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error) {
        bool kept = s->state == SANDBOX_PAUSED || s->state == SANDBOX_FAILED;
        int r = 0;

        if (s->state == SANDBOX_RUNNING) {
                done(s, NULL, userdata);
                return 0;
        }
        if (s->state == SANDBOX_PAUSING)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Sandbox %s is being paused; resume it after that", s->id);
        if (kept)
                r = check(s, error);
        else if (s->state != SANDBOX_RESUMING)
                r = sandbox_check_running(s, error);
        if (r >= 0 && kept)
                r = start(s, memory, error);
        if (r < 0)
                return r;
        r = sandbox_add_waiter(&s->priv->change_waiters, done, userdata);
        return r < 0 ? sd_bus_error_set_errno(error, r) : 0;
}
