/* SPDX-License-Identifier: Apache-2.0 */

/* Pausing: a capture that leaves the VMM paused, brought to disk, then sandbox.json, then the VMM is killed.
 *
 * sandbox.json is where it is decided (sandbox-keep.c): until it is written for good everything is undone by a RESUME, and
 * the guest goes on as if nothing had been; from then on the sandbox is a paused one, whatever happens to its VMM or
 * to us. Without memory the guest's agent freezes its file system first, and it is thawed when it comes to nothing. */

#include "base/fd-util.h"
#include "daemon/audit.h"
#include "daemon/capture.h"
#include "daemon/host-network.h"
#include "daemon/log.h"
#include "daemon/parked-tap.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

/* It writes out what is dirty in the guest. */
#define FREEZE_TIMEOUT_USEC (120 * USEC_PER_SEC)
/* It comes behind the freeze, which may be under way for as long as the guest's disk takes. */
#define THAW_TIMEOUT_USEC (600 * USEC_PER_SEC)
#define HELLO_TIMEOUT_USEC (10 * USEC_PER_SEC)

struct Pausing {
        Turn turn;
        Sandbox *sandbox;          /* NULL: it ended, and who asked knows */
        bool memory;
        bool frozen;               /* or may be */
        bool keeping;              /* sandbox.json is being written */
        Capture *capture;
        Snapshot *snapshot;        /* in use by us, once it is there */
        unsigned n_waits;          /* callbacks that will come; it is freed after the last one */
        int netns_fd, tap_fd;      /* of its VMM, for one that parks */
};

static void pausing_free(Pausing *g) {
        if (g->snapshot)
                snapshot_release(g->snapshot);
        close_many((int[]) { g->netns_fd, g->tap_fd }, 2);
        free(g);
}

/* The end of each callback: false when nobody waits any more, and then it may be gone. */
static bool pausing_wanted(Pausing *g) {
        g->n_waits--;
        if (g->sandbox)
                return true;
        if (g->n_waits == 0)
                pausing_free(g);
        return false;
}

static bool vmm_gone(const Sandbox *s) {
        return !s->priv->vmm || s->priv->vmm_lost || s->priv->exited;
}

/* Failing: it runs on. */

static void on_thawed(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size, bool more,
                      void *userdata) {
        const Sandbox *s = userdata;

        if (error < 0 && error != -ECONNRESET)
                log_warning("Sandbox %s: its file system may be frozen, it was not thawed: %s", s->id, message);
}

void sandbox_thaw(Sandbox *s) {
        int r = vmm_gone(s) ? 0 : vmm_client_agent(s->priv->vmm, AGENT_THAW, NULL, THAW_TIMEOUT_USEC, on_thawed, s);

        if (r < 0)
                log_warning_errno(r, "Sandbox %s: its file system can't be thawed: %m", s->id);
}

static void fail(Pausing *g, const sd_bus_error *error) {
        Sandbox *s = g->sandbox;

        s->priv->pausing = NULL;
        if (g->frozen)
                sandbox_thaw(s);
        if (s->state == SANDBOX_PAUSING) {
                sandbox_set_state(s, SANDBOX_RUNNING);
                sandbox_save_soon(s);
        }
        audit_pause_failed(s->manager->audit, s, strempty(error->message));
        sandbox_end_turn(s, &g->turn);
        pausing_free(g);
        sandbox_tell_waiters(s, &s->priv->change_waiters, error);
}

static void on_cancelled(Sandbox *s, const sd_bus_error *error, Snapshot *n, void *userdata) {
        Pausing *g = userdata;

        g->capture = NULL;
        fail(g, error);
}

/* With the VMM paused. When that is gone, the sandbox's end comes. */
static void cancel(Pausing *g, const sd_bus_error *error) {
        if (vmm_gone(g->sandbox))
                return;
        sandbox_forget_kept(g->sandbox, g->snapshot);
        snapshot_release(TAKE_PTR(g->snapshot));
        capture_cancel(g->capture, error, on_cancelled, g);
}

static void cancel_errno(Pausing *g, int r, const char *what) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Sandbox *s = g->sandbox;

        if (s->state != SANDBOX_PAUSING)
                (void) sd_bus_error_setf(&e, BUS_ERROR_NOT_RUNNING, "Sandbox %s was not paused, it is %s", s->id,
                                         sandbox_state_to_string(s->state));
        else
                (void) sd_bus_error_setf(&e, bus_error_of_errno(r), "Sandbox %s was not paused, it runs on: %s: %s", s->id, what,
                                         strerror(-r));
        cancel(g, &e);
}

/* Pausing, backwards: each function below starts what is above it. */

void sandbox_paused(Sandbox *s) {
        Pausing *g = TAKE_PTR(s->priv->pausing);

        audit_paused(s->manager->audit, s);
        sandbox_park(s, g ? TAKE_FD(g->netns_fd) : -EBADF, g ? TAKE_FD(g->tap_fd) : -EBADF);
        if (g) {
                sandbox_end_turn(s, &g->turn);
                pausing_free(g);
        }
        sandbox_tell_waiters(s, &s->priv->change_waiters, NULL);
        if (s->disk_top)
                snapshot_flatten_behind(s->disk_top);
}

/* From here it is paused: it has no VMM as soon as that is gone. */
static void commit(Pausing *g) {
        Sandbox *s = g->sandbox;
        Snapshot *n = g->snapshot;

        host_network_keep_slot(s->manager->network, s->slot, true);
        s->priv->kept_as = SANDBOX_PAUSED;
        s->priv->capture_id[0] = 0;
        sandbox_set_tops(s, n, n->has_memory ? n : NULL);
        s->priv->vmm = vmm_client_free(s->priv->vmm);
        capture_end(TAKE_PTR(g->capture));
        sandbox_end(s, VMM_EXIT_KILLED);
}

static void on_kept(int error, void *userdata) {
        Pausing *g = userdata;

        g->keeping = false;
        if (!pausing_wanted(g) || vmm_gone(g->sandbox))
                return;
        if (error < 0 || g->sandbox->state != SANDBOX_PAUSING)
                cancel_errno(g, error, "writing its description");
        else
                commit(g);
}

static void keep(Pausing *g) {
        int r = sandbox_keep(g->sandbox, SANDBOX_PAUSED, g->snapshot, on_kept, g);

        g->keeping = r >= 0;
        g->n_waits += r >= 0;
        if (r < 0)
                cancel_errno(g, r, "writing its description");
}

static void take_tap(Pausing *g, const PacketBody *body) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        uint32_t role;
        size_t i = 0;
        Tlv t;

        while (g->tap_fd < 0 && tlv_next(&reader, &t) > 0)
                if (t.tag == VMM_TAG_FD && i < body->n_fds) {
                        if (tlv_get_u32(&t, &role) >= 0 && role == VMM_FD_TAP &&
                            parked_tap_check(body->fds[i], g->sandbox->vmm_pid, &g->netns_fd) >= 0)
                                g->tap_fd = TAKE_FD(body->fds[i]);
                        i++;
                }
}

static void on_hello(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        Pausing *g = userdata;

        if (!pausing_wanted(g) || vmm_gone(g->sandbox))
                return;
        take_tap(g, body);
        if (g->tap_fd < 0)
                log_warning("Sandbox %s: its VMM did not hand out its tap, its place is made anew: %s", g->sandbox->id, message);
        keep(g);
}

/* Those who connect from now on wait in it. */
static void fetch_tap(Pausing *g) {
        Sandbox *s = g->sandbox;

        int r = s->auto_resume && g->snapshot->has_memory ?
                vmm_client_call(s->priv->vmm, VMM_OP_HELLO, NULL, NULL, 0, HELLO_TIMEOUT_USEC, on_hello, g) : -ENOTCONN;
        g->n_waits += r >= 0;
        if (r < 0)
                keep(g);
}

/* Checkpoints need not have reached the disk while it ran: the host might go down now. */
static Snapshot *find_volatile(const Sandbox *s) {
        const SnapshotStore *store = s->manager->snapshots;

        for (size_t i = 0; i < store->n_snapshots; i++) {
                Snapshot *n = store->snapshots[i];

                if (n->kind == SNAPSHOT_CHECKPOINT && !n->durable && n->sandbox_id && streq(n->sandbox_id, s->id))
                        return n;
        }
        return NULL;
}

static int sync_next(Pausing *g, Snapshot *n);

static void on_synced(Snapshot *n, int error, void *userdata) {
        Pausing *g = userdata;
        Snapshot *next;

        if (!pausing_wanted(g) || vmm_gone(g->sandbox))
                return;
        if (g->sandbox->state != SANDBOX_PAUSING || (error < 0 && n == g->snapshot)) {
                cancel_errno(g, error, "bringing it to disk");
                return;
        }
        if (error < 0)
                log_warning_errno(error, "Snapshot %s may not outlive a crash of the host: %m", n->id);
        next = error < 0 ? NULL : find_volatile(g->sandbox);
        if (!next || sync_next(g, next) < 0)
                fetch_tap(g);
}

static int sync_next(Pausing *g, Snapshot *n) {
        int r = snapshot_sync(n, on_synced, g);

        g->n_waits += r >= 0;
        return r;
}

static void on_captured(Sandbox *s, const sd_bus_error *error, Snapshot *n, void *userdata) {
        Pausing *g = userdata;

        if (error) {
                g->capture = NULL;
                fail(g, error);
                return;
        }
        snapshot_use(n);
        g->snapshot = n;
        int r = sync_next(g, n);
        if (r < 0)
                cancel_errno(g, r, "bringing it to disk");
}

static void capture(Pausing *g) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        CaptureSpec spec = { .kind = SNAPSHOT_PAUSE, .stay_paused = true, .no_memory = !g->memory };

        if (sandbox_capture(g->sandbox, &spec, on_captured, g, &g->capture, &e) < 0)
                fail(g, &e);
}

static void on_frozen(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size, bool more,
                      void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Pausing *g = userdata;

        if (more || !pausing_wanted(g) || vmm_gone(g->sandbox))
                return;
        if (error >= 0 && g->sandbox->state == SANDBOX_PAUSING) {
                capture(g);
                return;
        }
        if (error < 0)
                (void) sandbox_set_error(g->sandbox, &e, error, message);
        else
                (void) sd_bus_error_setf(&e, BUS_ERROR_NOT_RUNNING, "Sandbox %s was not paused, it is %s", g->sandbox->id,
                                         sandbox_state_to_string(g->sandbox->state));
        fail(g, &e);
}

static int freeze(Pausing *g) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(64);

        tlv_put_u32(&w, AGENT_TAG_FREEZE_DISK, 1);
        int r = vmm_client_agent(g->sandbox->priv->vmm, AGENT_FREEZE, &w, FREEZE_TIMEOUT_USEC, on_frozen, g);
        g->frozen = r >= 0;
        g->n_waits += r >= 0;
        return r;
}

static void on_turn(Sandbox *s, Turn *t) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Pausing *g = (Pausing *) t;

        int r = sandbox_check_running(s, &e);
        if (r >= 0) {
                sandbox_set_state(s, SANDBOX_PAUSING);
                r = sandbox_save(s);
        }
        bool saved = r >= 0;
        if (r >= 0 && g->memory) {
                capture(g);
                return;
        }
        if (r >= 0)
                r = freeze(g);
        if (r >= 0)
                return;
        if (!sd_bus_error_is_set(&e))
                (void) sd_bus_error_setf(&e, bus_error_of_errno(r), "Sandbox %s was not paused, it runs on: %s: %s", s->id,
                                         saved ? "asking its agent" : "saving its state", strerror(-r));
        fail(g, &e);
}

static void on_drop(Sandbox *s, Turn *t, const sd_bus_error *error) {
        Pausing *g = (Pausing *) t;

        s->priv->pausing = NULL;
        g->sandbox = NULL;
        /* Is sandbox.json written or not? A guest that ran on would be in two states, then. */
        if (g->keeping && g->capture && !vmm_gone(s))
                capture_leave(TAKE_PTR(g->capture));
        else
                g->capture = capture_free(g->capture);
        sandbox_tell_waiters(s, &s->priv->change_waiters, error);
        if (g->n_waits == 0)
                pausing_free(g);
}

static int take_turn(Sandbox *s, bool memory, sd_bus_error *error) {
        Pausing *g = new0(Pausing, 1);
        if (!g)
                return sd_bus_error_set_errno(error, ENOMEM);

        *g = (Pausing) {
                .turn = { .start = on_turn, .drop = on_drop },
                .sandbox = s,
                .memory = memory,
                .netns_fd = -EBADF,
                .tap_fd = -EBADF,
        };
        int r = sandbox_take_turn(s, &g->turn, error);
        if (r < 0) {
                free(g);
                return r;
        }
        s->priv->pausing = g;
        return 0;
}

int sandbox_pause(Sandbox *s, bool memory, SandboxDone done, void *userdata, sd_bus_error *error) {
        Pausing *g = s->priv->pausing;

        if (s->state == SANDBOX_PAUSED) {
                done(s, NULL, userdata);
                return 0;
        }
        if (s->state == SANDBOX_RESUMING)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Sandbox %s is being resumed; pause it after that", s->id);
        if (g && g->turn.started && memory && !g->memory)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY,
                                         "Sandbox %s is being paused without its memory, which can't be kept any more", s->id);
        int r = s->state == SANDBOX_PAUSING ? 0 : sandbox_check_running(s, error);
        if (r >= 0 && s->state == SANDBOX_RUNNING && !g)
                r = take_turn(s, memory, error);
        if (r < 0)
                return r;
        /* Who does not want to lose it has the last word. */
        if (g && !g->turn.started && memory)
                g->memory = true;
        r = sandbox_add_waiter(&s->priv->change_waiters, done, userdata);
        return r < 0 ? sd_bus_error_set_errno(error, r) : 0;
}
