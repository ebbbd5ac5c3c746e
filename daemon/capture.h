/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One instant of a running sandbox, saved as a snapshot: what sandbox_snapshot(), pause and rollback are made of.
 *
 * Who has the sandbox's turn (daemon/sandbox-turn.h) starts one; it calls back once, with the snapshot or with why
 * there is none, which the journal says as well. On an error the guest runs on as if nothing had been. While the VMM is paused, what others ask of
 * the guest waits.
 *
 * With stay_paused the VMM is left paused at the end, and the Capture is its owner's until he ends it with
 * capture_cancel(), capture_end() or capture_free(). */

#include "daemon/sandbox.h"

typedef struct Capture Capture;

typedef struct CaptureSpec {
        SnapshotKind kind;
        const char *name;          /* may be NULL */
        bool stay_paused;
        bool no_memory;            /* the disk alone; the guest has seen to it that it is whole */
} CaptureSpec;

/* What it took. */
typedef struct CaptureFigures {
        uint64_t pause_usec;       /* in which the guest stood still */
        uint64_t n_pages;          /* of memory that were saved */
} CaptureFigures;

/* snapshot: published, not synced; valid during the call, longer by snapshot_use(). NULL on error, and then the
 * Capture is gone; it is gone without an error too, but for stay_paused. */
typedef void (*CaptureDone)(Sandbox *s, const sd_bus_error *error, Snapshot *snapshot, void *userdata);

/* done is not called when this fails. */
int sandbox_capture(Sandbox *s, const CaptureSpec *spec, CaptureDone done, void *userdata, Capture **ret, sd_bus_error *error);
/* As if nothing had been: the guest goes on with what it had. done gets why, and the Capture is gone. */
void capture_cancel(Capture *c, const sd_bus_error *why, CaptureDone done, void *userdata);
/* In the call that tells of its success. */
CaptureFigures capture_figures(const Capture *c);
/* The empty overlay that was made for the guest (daemon/sandbox-overlay.h); the caller's from here. */
int capture_take_overlay(Capture *c);
/* The VMM runs again by other means, or is going to be killed. Our use of the snapshot goes with it. */
void capture_end(Capture *c);
/* cubed goes down: the VMM stays paused, and its state.json says of what. The next cubed decides. */
void capture_leave(Capture *c);
/* The sandbox ends: not to be waited for any more, whatever it is at. Accepts NULL. */
Capture *capture_free(Capture *c);

/* In the background: what its sandbox was before it was lost becomes a snapshot that people see. */
void keep_safety_copy(Snapshot *n);

/* Merges its layers if there are many; what goes wrong is for the journal. */
void snapshot_flatten_behind(Snapshot *n);

/* The sandbox runs on these layers from now on. */
void sandbox_set_tops(Sandbox *s, Snapshot *disk, Snapshot *memory);
/* What an adopted one held until its VMM was asked. */
void sandbox_release_pending(Sandbox *s);
/* How many its VMM has that was given them all. */
void sandbox_count_layers(Sandbox *s);
/* Both, once its VMM has them: it took the snapshot's files as layers on top, or all anew if it was full. */
void sandbox_add_layers(Sandbox *s, Snapshot *n);
/* Its VMM has been given the whole of these. */
void sandbox_replace_layers(Sandbox *s, Snapshot *n);
