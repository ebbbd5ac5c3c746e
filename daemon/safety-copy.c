/* SPDX-License-Identifier: Apache-2.0 */

/* A safety copy whose sandbox is lost: it becomes one of those that people see, named after the sandbox. */

#include <stdio.h>

#include "daemon/capture.h"
#include "daemon/log.h"
#include "daemon/snapshot-private.h"

#define NAME_SUFFIX "-before-rollback"

typedef struct Keep {
        Snapshot *snapshot;      /* in use by us */
        char *name;
} Keep;

static void keep_free(Keep *k) {
        snapshot_release(k->snapshot);
        free(k->name);
        free(k);
}

static void on_synced(Snapshot *n, int error, void *userdata) {
        if (error < 0)
                log_warning_errno(error, "Snapshot %s may not outlive a crash of the host: %m", n->id);
        keep_free(userdata);
}

static void become_seen(Snapshot *n, void *userdata) {
        Keep *k = userdata;

        n->kind = SNAPSHOT_USER;
        n->name = k->name;
}

static void on_seen(Snapshot *n, int error, void *userdata) {
        Keep *k = userdata;

        if (error < 0) {
                log_error_errno(error, "Snapshot %s can't be kept: %m", n->id);
                keep_free(k);
                return;
        }
        k->name = NULL; /* the snapshot's */
        int r = snapshot_sync(n, on_synced, k);
        if (r < 0)
                on_synced(n, r, k);
}

void keep_safety_copy(Snapshot *n) {
        Keep *k = new0(Keep, 1);

        if (!k) {
                log_oom();
                return;
        }
        k->snapshot = n;
        snapshot_use(n);
        if (asprintf(&k->name, "%s" NAME_SUFFIX, strempty(n->sandbox_id)) < 0)
                k->name = NULL;
        int r = snapshot_commit(n, become_seen, on_seen, k);
        if (r < 0) {
                log_error_errno(r, "Snapshot %s can't be kept: %m", n->id);
                keep_free(k);
        }
}
