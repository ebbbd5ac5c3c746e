/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints: snapshots that a sandbox takes of itself, before each exec or at an interval. They are numbered, go with
 * their sandbox, and there are only so many: the oldest one goes when there are too many or they are too large, which
 * leaves its layer for as long as younger ones stand on it.
 *
 * One that fails is told in the journal, once in a while, and nowhere else. */

#include <stdio.h>

#include "daemon/audit.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

/* Of failures, one in this time is told. */
#define TELL_USEC (60 * USEC_PER_SEC)

typedef struct CheckpointWaiter {
        void (*done)(Sandbox *s, void *userdata);
        void *userdata;
        struct CheckpointWaiter *next;
} CheckpointWaiter;

/* One that is under way. */
struct Checkpoint {
        CheckpointWaiter *waiters;
};

/* A removal that is under way: the sandbox may go meanwhile. */
typedef struct Pruning {
        Manager *manager;
        char id[21];
} Pruning;

static void prune(Sandbox *s);

static void on_removed(Snapshot *n, int error, void *userdata) {
        _cleanup_free_ Pruning *g = userdata;
        Sandbox *s = g->manager->snapshots->stopping ? NULL : manager_find_sandbox(g->manager, g->id);

        if (error < 0)
                log_warning_errno(error, "Checkpoint %llu of sandbox %s can't be removed: %m", (unsigned long long) n->number, g->id);
        if (!s)
                return;
        s->priv->pruning = false;
        if (error >= 0)
                prune(s);
}

static bool is_checkpoint_of(const Snapshot *n, const Sandbox *s) {
        return n->kind == SNAPSHOT_CHECKPOINT && streq(strempty(n->sandbox_id), s->id);
}

/* The oldest of those that are more than there may be. The youngest one stays, however large it is. */
static Snapshot *find_superfluous(const Sandbox *s) {
        const SnapshotStore *store = s->manager->snapshots;
        const Config *c = &s->manager->config;
        uint64_t n = 0, bytes = 0;
        Snapshot *oldest = NULL;

        for (size_t i = 0; i < store->n_snapshots; i++) {
                Snapshot *k = store->snapshots[i];
                if (!is_checkpoint_of(k, s))
                        continue;
                n++;
                for (size_t f = 0; f < _SNAPSHOT_FILE_MAX; f++)
                        bytes += k->file_bytes[f];
                if (!oldest || k->number < oldest->number)
                        oldest = k;
        }
        return n > 1 && (n > c->checkpoints_max || bytes > c->checkpoint_bytes_max) ? oldest : NULL;
}

static void prune(Sandbox *s) {
        Snapshot *n = s->priv->pruning ? NULL : find_superfluous(s);

        if (!n)
                return;
        Pruning *g = new0(Pruning, 1);
        if (!g)
                return;
        g->manager = s->manager;
        memcpy(g->id, s->id, sizeof(g->id));
        int r = snapshot_remove(n, on_removed, g);
        s->priv->pruning = r >= 0;
        if (r < 0) {
                log_warning_errno(r, "Checkpoint %llu of sandbox %s can't be removed: %m", (unsigned long long) n->number, s->id);
                free(g);
        }
}

static Snapshot *find_youngest_before(const Sandbox *s, uint64_t number) {
        const SnapshotStore *store = s->manager->snapshots;
        Snapshot *youngest = NULL;

        for (size_t i = 0; i < store->n_snapshots; i++) {
                Snapshot *n = store->snapshots[i];
                if (is_checkpoint_of(n, s) && n->number < number && (!youngest || n->number > youngest->number))
                        youngest = n;
        }
        return youngest;
}

/* The youngest first: so that those beneath are needed no more when it is their turn. */
void sandbox_remove_checkpoints(Sandbox *s) {
        uint64_t number = UINT64_MAX;

        if (!s->manager->snapshots || s->manager->snapshots->stopping)
                return;
        for (Snapshot *n; (n = find_youngest_before(s, number));) {
                number = n->number;
                int r = snapshot_remove(n, NULL, NULL);
                if (r < 0)
                        log_warning_errno(r, "Checkpoint %llu of sandbox %s can't be removed: %m", (unsigned long long) n->number, s->id);
        }
}

void sandbox_checkpoint_failed(Sandbox *s, const char *why) {
        struct SandboxPrivate *p = s->priv;
        _cleanup_free_ char *text = NULL;
        uint64_t now = clock_usec(CLOCK_MONOTONIC);

        if (p->checkpoint_told_usec > 0 && now - p->checkpoint_told_usec < TELL_USEC) {
                p->checkpoints_untold++;
                return;
        }
        if (p->checkpoints_untold > 0 && asprintf(&text, "%s (and %u more failed before)", why, p->checkpoints_untold) < 0)
                text = NULL;
        audit_snapshot_failed(s->manager->audit, s, text ?: why);
        p->checkpoint_told_usec = now;
        p->checkpoints_untold = 0;
}

static int arm_timer(Sandbox *s);

static void on_taken(Sandbox *s, const sd_bus_error *error, Snapshot *n, void *userdata) {
        struct Checkpoint *k = userdata;

        s->priv->checkpoint = NULL;
        if (n)
                prune(s);
        for (CheckpointWaiter *w; (w = k->waiters);) {
                k->waiters = w->next;
                w->done(s, w->userdata);
                free(w);
        }
        free(k);
}

static int begin(Sandbox *s) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        struct Checkpoint *k = new0(struct Checkpoint, 1);

        if (!k)
                return -ENOMEM;
        int r = sandbox_snapshot(s, SNAPSHOT_CHECKPOINT, NULL, on_taken, k, &e);
        if (r < 0) {
                sandbox_checkpoint_failed(s, strempty(e.message));
                free(k);
                return r;
        }
        s->priv->checkpoint = k;
        return 0;
}

int sandbox_checkpoint(Sandbox *s, void (*done)(Sandbox *s, void *userdata), void *userdata) {
        CheckpointWaiter *w = new0(CheckpointWaiter, 1), **end;

        if (!w)
                return -ENOMEM;
        *w = (CheckpointWaiter) { .done = done, .userdata = userdata };
        int r = s->priv->checkpoint ? 0 : begin(s);
        if (r < 0) {
                free(w);
                return r;
        }
        for (end = &s->priv->checkpoint->waiters; *end; end = &(*end)->next)
                ;
        *end = w;
        return 0;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Sandbox *s = userdata;

        if (s->state == SANDBOX_RUNNING && !s->priv->checkpoint)
                (void) begin(s);
        int r = arm_timer(s);
        if (r < 0)
                log_warning_errno(r, "Sandbox %s takes no more checkpoints: %m", s->id);
        return 0;
}

static int arm_timer(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        p->checkpoint_timer = sd_event_source_disable_unref(p->checkpoint_timer);
        return sd_event_add_time_relative(s->manager->event, &p->checkpoint_timer, CLOCK_MONOTONIC, s->checkpoint_usec,
                                          100 * USEC_PER_MSEC, on_timer, s);
}

int sandbox_arm_checkpoints(Sandbox *s) {
        return s->checkpoint_usec == 0 || s->checkpoint_usec == UINT64_MAX ? 0 : arm_timer(s);
}
