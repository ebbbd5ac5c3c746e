/* SPDX-License-Identifier: Apache-2.0 */

/* A snapshot that somebody asked for: a capture in its turn, then on disk for good. Until it is there nobody sees it, and it
 * goes by itself: it may be that the disk takes no change any more, by which it could be taken away. */

#include "daemon/audit.h"
#include "daemon/capture.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

typedef struct Taking {
        Turn turn;
        Sandbox *sandbox;          /* NULL: it ended, and who asked knows */
        Capture *capture;          /* while it is under way */
        CaptureFigures figures;
        SnapshotKind kind;
        char *name;
        SnapshotTaken done;
        void *userdata;
} Taking;

static void taking_free(Taking *t) {
        free(t->name);
        free(t);
}

/* In the quota of snapshots. */
static void count(const Taking *t, int by) {
        if (t->kind == SNAPSHOT_USER)
                t->sandbox->priv->n_snapshots_asked += (uint32_t) by;
}

static void finish(Taking *t, const sd_bus_error *error, Snapshot *n) {
        count(t, -1);
        if (n)
                audit_snapshot(t->sandbox->manager->audit, t->sandbox, n, t->figures.pause_usec, t->figures.n_pages);
        t->done(t->sandbox, error, n, t->userdata);
        sandbox_end_turn(t->sandbox, &t->turn);
        taking_free(t);
}

/* A copy for those who come right after it, or one of many: the disk may take its time. */
static bool need_not_last(SnapshotKind kind) {
        return kind == SNAPSHOT_FORK || kind == SNAPSHOT_CHECKPOINT;
}

static void remove_unwanted(Snapshot *n) {
        int r = n->store->stopping ? 0 : snapshot_remove(n, NULL, NULL);

        if (r < 0)
                log_warning_errno(r, "Snapshot %s, of which nobody was told, can't be removed: %m", n->id);
}

static void on_synced(Snapshot *n, int error, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Taking *t = userdata;

        if (!t->sandbox) {
                if (error >= 0)
                        remove_unwanted(n);
                snapshot_release(n);
                taking_free(t);
                return;
        }
        if (error < 0) {
                (void) sd_bus_error_setf(&e, bus_error_of_errno(error), "Snapshot %s of sandbox %s could not be brought to disk: %s",
                                         n->id, t->sandbox->id, strerror(-error));
                audit_snapshot_failed(t->sandbox->manager->audit, t->sandbox, strempty(e.message));
        }
        finish(t, error < 0 ? &e : NULL, error < 0 ? NULL : n);
        snapshot_release(n);
}

static void on_captured(Sandbox *s, const sd_bus_error *error, Snapshot *n, void *userdata) {
        Taking *t = userdata;

        if (n)
                t->figures = capture_figures(t->capture);
        t->capture = NULL;
        if (error || need_not_last(t->kind)) {
                finish(t, error, n);
                return;
        }
        snapshot_use(n);
        int r = snapshot_sync_as(n, t->kind, on_synced, t);
        if (r < 0)
                on_synced(n, r, t);
}

static void on_turn(Sandbox *s, Turn *turn) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Taking *t = (Taking *) turn;
        CaptureSpec spec = { .kind = need_not_last(t->kind) ? t->kind : SNAPSHOT_FORK, .name = t->name };

        if (sandbox_capture(s, &spec, on_captured, t, &t->capture, &e) < 0)
                finish(t, &e, NULL);
}

static void on_drop(Sandbox *s, Turn *turn, const sd_bus_error *error) {
        Taking *t = (Taking *) turn;

        t->done(s, error, NULL, t->userdata);
        count(t, -1);
        t->sandbox = NULL;
        if (t->turn.started && !t->capture)
                return; /* on its way to disk: on_synced() comes */
        t->capture = capture_free(t->capture);
        taking_free(t);
}

int sandbox_snapshot(Sandbox *s, SnapshotKind kind, const char *name, SnapshotTaken done, void *userdata, sd_bus_error *error) {
        int r = sandbox_check_running(s, error);
        if (r >= 0 && kind == SNAPSHOT_USER)
                r = sandbox_check_snapshot_quota(s, error);
        if (r < 0)
                return r;

        Taking *t = new0(Taking, 1);
        if (!t)
                return sd_bus_error_set_errno(error, ENOMEM);
        *t = (Taking) {
                .turn = { .start = on_turn, .drop = on_drop },
                .sandbox = s,
                .kind = kind,
                .name = name ? strdup(name) : NULL,
                .done = done,
                .userdata = userdata,
        };
        count(t, 1);
        r = name && !t->name ? sd_bus_error_set_errno(error, ENOMEM) : sandbox_take_turn(s, &t->turn, error);
        if (r < 0) {
                count(t, -1);
                taking_free(t);
        }
        return r;
}
