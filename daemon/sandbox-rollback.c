/* SPDX-License-Identifier: Apache-2.0 */

/* Back to a snapshot, in the same VMM: a capture that leaves the guest paused is the safety copy, ROLLBACK puts the
 * target's memory and disk in place, with a new overlay, and RESUME with a claim lets its guest go on. It counts once
 * its agent has answered.
 *
 * What fails before anything was replaced is undone by a plain RESUME: nobody in the guest noticed. What fails later
 * is undone by the same way to the safety copy. When that fails, too, the sandbox ends, and the safety copy becomes
 * a snapshot that people see (sandbox-keep.c).
 *
 * state.json names safety copy ("capture") and target ("rollback") meanwhile. A cubed that finds them there asks the VMM
 * how far it came: sandbox_put_back(). */

#include <stdio.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/audit.h"
#include "daemon/capture.h"
#include "daemon/log.h"
#include "daemon/sandbox-attach.h"
#include "daemon/sandbox-overlay.h"
#include "daemon/scope.h"
#include "dbus/bus-errors.h"

/* For the VMM: it maps files and loads vCPUs. A busy host may take its time. */
#define CALL_TIMEOUT_USEC (60 * USEC_PER_SEC)

typedef struct Rollback {
        Turn turn;
        Sandbox *sandbox;          /* NULL: it ended, and who asked knows */
        Snapshot *target, *safety; /* in use by us; no safety copy yet: NULL */
        Capture *capture;          /* of the safety copy, until the VMM runs again */
        int overlay_fd;            /* what the guest's disk is to write to */
        unsigned n_memory_layers, n_disk_layers; /* of what the VMM was given last */
        uint64_t scope_bytes;      /* memory for which the scope's limit is */
        bool replaced;             /* the guest of before is not in the VMM any more, or may not be */
        bool lost;                 /* and can't be brought back; error says so */
        Snapshot *running;         /* target or safety copy, whose guest has taken its claim */
        unsigned n_waits;          /* callbacks that will come; it is freed after the last one */
        sd_bus_error error;        /* why it is being undone */
        SandboxDone done;          /* may be NULL */
        void *userdata;
} Rollback;

static Rollback *rollback_free(Rollback *b) {
        if (b->target)
                snapshot_release(b->target);
        if (b->safety)
                snapshot_release(b->safety);
        safe_close(b->overlay_fd);
        sd_bus_error_free(&b->error);
        free(b);
        return NULL;
}

/* The end of each callback: false when nobody waits any more, and then it may be gone. */
static bool rollback_wanted(Rollback *b) {
        b->n_waits--;
        if (b->sandbox)
                return true;
        if (b->n_waits == 0)
                rollback_free(b);
        return false;
}

/* Its VMM is gone or about to go: on_drop() comes. */
static bool vmm_gone(const Sandbox *s) {
        return !s->priv->vmm || s->priv->vmm_lost || s->priv->exited;
}

static int call(Rollback *b, VmmOp op, const TlvWriter *w, const int *fds, size_t n_fds, VmmReply reply) {
        if (!b->sandbox->priv->vmm)
                return -ENOTCONN;
        int r = vmm_client_call(b->sandbox->priv->vmm, op, w, fds, n_fds, CALL_TIMEOUT_USEC, reply, b);
        b->n_waits += r >= 0;
        return r;
}

/* The end. */

static void finish(Rollback *b) {
        Sandbox *s = b->sandbox;

        if (*s->priv->rollback_id) {
                s->priv->rollback_id[0] = 0;
                sandbox_save_soon(s);
        }
        if (b->done)
                b->done(s, sd_bus_error_is_set(&b->error) ? &b->error : NULL, b->userdata);
        sandbox_end_turn(s, &b->turn);
        rollback_free(b);
}

static void on_scope(Scope *scope, const sd_bus_error *error, void *userdata) {
        Rollback *b = userdata;

        if (error)
                log_warning("Sandbox %s: PID 1 did not take its memory limit back: %s", b->sandbox->id, strempty(error->message));
        finish(b);
}

/* The scope's limit is for what the guest holds. */
static void settle_scope(Rollback *b) {
        Sandbox *s = b->sandbox;
        uint64_t mem = s->mem_bytes;

        if (b->scope_bytes == mem || scope_set_limits(s->priv->scope, scope_memory_max(mem), mem, 0, on_scope, b) < 0)
                finish(b);
}

static void fail(Rollback *b, const char *name, const char *why) {
        if (!sd_bus_error_is_set(&b->error))
                (void) sd_bus_error_setf(&b->error, name, "Sandbox %s could not be rolled back to snapshot %s: %s",
                                         b->sandbox->id, b->target ? b->target->id : b->sandbox->priv->rollback_id, why);
}

/* Nobody has to look whether it does. */
static void add_that_it_goes_on(Rollback *b) {
        _cleanup_free_ char *text = NULL;

        if (asprintf(&text, "%s. It goes on as it was before.", strempty(b->error.message)) < 0) {
                text = NULL;
                return;
        }
        _cleanup_(sd_bus_error_free) sd_bus_error first = b->error;
        b->error = SD_BUS_ERROR_NULL;
        (void) sd_bus_error_set(&b->error, first.name, text);
        audit_rollback_failed(b->sandbox->manager->audit, b->sandbox, NULL, text);
}

static const char *error_name(int r) {
        if (r == -EBADMSG || r == -ESTALE || r == -EXDEV || r == -EINVAL || r == -ENOENT)
                return BUS_ERROR_SNAPSHOT_INVALID;
        return r == -ETIMEDOUT ? BUS_ERROR_GUEST_TIMEOUT : bus_error_of_errno(r);
}

static void fail_errno(Rollback *b, int r, const char *message) {
        fail(b, error_name(r), isempty(message) ? strerror(-r) : message);
}

/* Nothing brings this guest back. Who asked is told once it is gone. */
static void give_up(Rollback *b, const char *why) {
        _cleanup_free_ char *first = b->error.message ? strdup(b->error.message) : NULL;
        Sandbox *s = b->sandbox;

        b->lost = true;
        sd_bus_error_free(&b->error);
        (void) sd_bus_error_setf(&b->error, BUS_ERROR_GUEST_FAILED, "Sandbox %s ends: a rollback failed, and what it was before could "
                                 "not be put back (%s). %s%sIt is kept as snapshot %s; go on from it by: cubectl create snapshot:%s",
                                 s->id, why, strempty(first), first ? ". " : "", b->safety->id, b->safety->id);
        audit_rollback_failed(s->manager->audit, s, b->safety, strempty(b->error.message));
        sandbox_end(s, VMM_EXIT_ROLLBACK);
}

/* Its VMM runs on top. */
static void go_on(Rollback *b, Snapshot *top) {
        Sandbox *s = b->sandbox;
        struct SandboxPrivate *p = s->priv;
        bool other_memory = s->mem_bytes != top->mem_bytes;

        sandbox_set_tops(s, top, top);
        p->n_memory_layers = b->n_memory_layers;
        p->n_disk_layers = b->n_disk_layers;
        p->agent_lost = false;
        sandbox_take_overlay(s, TAKE_FD(b->overlay_fd));
        p->rollback_id[0] = p->capture_id[0] = 0;
        s->restored = true;
        s->mem_bytes = top->mem_bytes;
        sandbox_tell_time(s, NULL);
        sandbox_save_soon(s);
        if (b->capture)
                capture_end(TAKE_PTR(b->capture));
        else
                vmm_client_let_go(p->vmm);
        sandbox_changed(s, "BaseSnapshot");
        sandbox_changed(s, "Start");
        if (other_memory)
                sandbox_changed(s, "Memory");
        settle_scope(b);
}

static void go_on_running(Rollback *b) {
        if (b->running == b->target)
                audit_rolled_back(b->sandbox->manager->audit, b->sandbox, b->target);
        else
                add_that_it_goes_on(b);
        go_on(b, b->running);
}

static void on_opened(Sandbox *s, const sd_bus_error *error) {
        Rollback *b = (Rollback *) s->priv->turns;

        if (vmm_gone(s))
                return;
        /* It stays closed, but it is where it was to go. */
        if (error)
                log_warning("%s", strempty(error->message));
        go_on_running(b);
}

/* Its guest may talk again. */
static void open_and_go_on(Rollback *b, Snapshot *running) {
        b->running = running;
        int r = sandbox_network_open(b->sandbox, on_opened);
        if (r == 0)
                return;
        if (r < 0)
                log_warning_errno(r, "The network of sandbox %s can't be opened: %m", b->sandbox->id);
        go_on_running(b);
}

/* ROLLBACK and the claim: to the target, and the same to the safety copy. */

static int send_rollback(Rollback *b, Snapshot *to, VmmReply reply, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);
        _cleanup_attached_ Attached a = { .writer = &w };
        Snapshot *chain[VMM_DISK_LAYERS_MAX];

        int n = snapshot_memory_chain(to, chain, SNAPSHOT_LAYERS_MAX), k = snapshot_disk_chain(to, chain, VMM_DISK_LAYERS_MAX);
        int r = n < 0 ? n : k < 0 ? k : attach_snapshot_file(&a, to, VMM_FD_STATE, SNAPSHOT_FILE_STATE, error);
        if (r >= 0)
                r = attach_memory_layers(&a, to, error);
        if (r >= 0)
                r = attach_disk_layers(&a, to, error);
        if (r >= 0)
                r = attach(&a, VMM_FD_DISK_OVERLAY, b->overlay_fd);
        if (r >= 0)
                r = call(b, VMM_OP_ROLLBACK, &w, a.fds, a.n, reply);
        if (r >= 0) {
                b->n_memory_layers = (unsigned) n;
                b->n_disk_layers = (unsigned) k;
        }
        return r;
}

/* Those who asked the guest that is no more. */
static void forget(Rollback *b) {
        Sandbox *s = b->sandbox;

        s->priv->life++;
        vmm_client_forget(s->priv->vmm, "it was rolled back meanwhile");
}

static int send_claim(Rollback *b, VmmAgentReply reply) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);
        Sandbox *s = b->sandbox;

        int r = sandbox_put_claim(s, &w);
        if (r >= 0)
                r = vmm_client_resume(s->priv->vmm, &w, s->manager->config.boot_timeout_usec, reply, b);
        if (w.data)
                explicit_bzero(w.data, w.size);
        b->n_waits += r >= 0;
        return r;
}

/* Putting back. */

static void on_safety_claimed(VmmClient *v, int error, const char *message, const uint8_t *body, size_t size, bool more,
                              void *userdata) {
        Rollback *b = userdata;

        if (more || !rollback_wanted(b) || vmm_gone(b->sandbox))
                return;
        if (error < 0) {
                give_up(b, message);
                return;
        }
        open_and_go_on(b, b->safety);
}

static void on_safety_loaded(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        Rollback *b = userdata;

        if (!rollback_wanted(b) || vmm_gone(b->sandbox))
                return;
        if (error < 0) {
                give_up(b, message);
                return;
        }
        forget(b);
        int r = send_claim(b, on_safety_claimed);
        if (r < 0 && !vmm_gone(b->sandbox))
                give_up(b, strerror(-r));
}

static void load_safety(Rollback *b) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        int fd = -EBADF;

        /* The one that the target's guest may have written to is not the safety copy's. */
        int r = sandbox_new_overlay(b->sandbox, &fd);
        if (r >= 0) {
                safe_close(b->overlay_fd);
                b->overlay_fd = fd;
                r = send_rollback(b, b->safety, on_safety_loaded, &e);
        }
        if (r < 0 && !vmm_gone(b->sandbox))
                give_up(b, e.message ?: strerror(-r));
}

static void on_paused(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        Rollback *b = userdata;

        if (!rollback_wanted(b) || vmm_gone(b->sandbox))
                return;
        if (error < 0)
                give_up(b, message);
        else
                load_safety(b);
}

static void on_state(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        Rollback *b = userdata;
        int r = 0;

        if (!rollback_wanted(b) || vmm_gone(b->sandbox))
                return;
        uint32_t state = error < 0 ? _VMM_STATE_MAX : vmm_client_state(body);
        if (state == VMM_STATE_RUNNING)
                r = call(b, VMM_OP_PAUSE, NULL, NULL, 0, on_paused);
        else if (state == VMM_STATE_PAUSED || state == VMM_STATE_TORN)
                load_safety(b);
        else if (state != VMM_STATE_STOPPING) /* that one ends */
                give_up(b, error < 0 ? message : "its VMM is in the wrong state");
        if (r < 0 && !vmm_gone(b->sandbox))
                give_up(b, strerror(-r));
}

/* error is set. */
static void put_back(Rollback *b) {
        if (vmm_gone(b->sandbox))
                return;
        log_warning("%s; putting it back", strempty(b->error.message));
        int r = call(b, VMM_OP_HELLO, NULL, NULL, 0, on_state);
        if (r < 0 && !vmm_gone(b->sandbox))
                give_up(b, strerror(-r));
}

/* There. */

static void on_claimed(VmmClient *v, int error, const char *message, const uint8_t *body, size_t size, bool more,
                       void *userdata) {
        Rollback *b = userdata;

        if (more || !rollback_wanted(b) || vmm_gone(b->sandbox))
                return;
        if (error < 0) {
                fail_errno(b, error, message);
                put_back(b);
                return;
        }
        sandbox_tell_claimed(b->sandbox, body, size);
        open_and_go_on(b, b->target);
}

/* The guest is as it was, and goes on with a plain RESUME. */
static void on_cancelled(Sandbox *s, const sd_bus_error *error, Snapshot *n, void *userdata) {
        Rollback *b = userdata;

        b->capture = NULL;
        s->priv->rollback_id[0] = 0;
        sandbox_save_soon(s);
        add_that_it_goes_on(b);
        settle_scope(b);
}

static void cancel(Rollback *b) {
        b->replaced = false;
        if (!vmm_gone(b->sandbox))
                capture_cancel(b->capture, &b->error, on_cancelled, b);
}

static void on_refused(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        Rollback *b = userdata;

        if (!rollback_wanted(b) || vmm_gone(b->sandbox))
                return;
        if (error >= 0 && vmm_client_state(body) == VMM_STATE_PAUSED)
                cancel(b);
        else
                put_back(b);
}

static void claim_target(Rollback *b) {
        forget(b);
        int r = send_claim(b, on_claimed);
        if (r >= 0)
                return;
        fail_errno(b, r, "the claim could not be sent");
        put_back(b);
}

static void on_network_closed(Sandbox *s) {
        if (!vmm_gone(s))
                claim_target((Rollback *) s->priv->turns);
}

static void on_loaded(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        Rollback *b = userdata;

        if (!rollback_wanted(b) || vmm_gone(b->sandbox))
                return;
        if (error < 0) {
                fail_errno(b, error, message);
                /* One that answers too late may have done it. */
                int r = error == -ETIMEDOUT ? error : call(b, VMM_OP_HELLO, NULL, NULL, 0, on_refused);
                if (r < 0)
                        put_back(b);
                return;
        }
        /* Nobody of the host is connected any more with the guest that is no more: its successor knows nothing of that. */
        if (!sandbox_network_close(b->sandbox, on_network_closed))
                claim_target(b);
}

static void on_captured(Sandbox *s, const sd_bus_error *error, Snapshot *n, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Rollback *b = userdata;

        if (error) {
                b->capture = NULL;
                fail(b, error->name, strempty(error->message));
                settle_scope(b);
                return;
        }
        snapshot_use(n);
        b->safety = n;
        b->overlay_fd = capture_take_overlay(b->capture);
        int r = sandbox_save(s);
        if (r >= 0)
                r = send_rollback(b, b->target, on_loaded, &e);
        b->replaced = r >= 0;
        if (r < 0) {
                fail(b, e.name ?: error_name(r), e.message ?: strerror(-r));
                cancel(b);
        }
}

/* Starting. */

static int check_target(const Sandbox *s, const Snapshot *n, sd_bus_error *error) {
        char a[FORMAT_SIZE_MAX], b[FORMAT_SIZE_MAX];

        if (n->kind == SNAPSHOT_LAYER || !streq(strempty(n->sandbox_id), s->id))
                return sd_bus_error_setf(error, BUS_ERROR_NO_SUCH_SNAPSHOT, "Sandbox %s has no snapshot %s", s->id, n->id);
        if (!n->has_memory)
                return sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_INVALID, "Snapshot %s is of a disk alone, to which a running sandbox "
                                         "can't be rolled back; start another one from it: cubectl create snapshot:%s", n->id, n->id);
        if (n->cpus != s->cpus)
                return sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_INVALID, "Snapshot %s is of when sandbox %s had %u CPUs, it has %u now; "
                                         "start another one from it: cubectl create snapshot:%s", n->id, s->id, n->cpus, s->cpus, n->id);
        if (n->boot_mem_bytes != s->boot_mem_bytes || n->plug_bytes != s->plug_bytes)
                return sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_INVALID, "Snapshot %s is of when sandbox %s had booted with %s of memory, "
                                         "now it is %s, or it could grow otherwise; start another one from it: cubectl create snapshot:%s",
                                         n->id, s->id, format_size(a, n->boot_mem_bytes), format_size(b, s->boot_mem_bytes), n->id);
        if (n->disk_bytes != s->disk_bytes)
                return sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_INVALID, "Snapshot %s has a disk of %s, sandbox %s has one of %s; start "
                                         "another one from it: cubectl create snapshot:%s", n->id, format_size(a, n->disk_bytes), s->id,
                                         format_size(b, s->disk_bytes), n->id);
        return 0;
}

static void start_capture(Rollback *b) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        CaptureSpec spec = { .kind = SNAPSHOT_FORK, .stay_paused = true };

        if (sandbox_capture(b->sandbox, &spec, on_captured, b, &b->capture, &e) < 0) {
                fail(b, e.name, strempty(e.message));
                settle_scope(b);
        }
}

static void on_raised(Scope *scope, const sd_bus_error *error, void *userdata) {
        Rollback *b = userdata;

        if (error) {
                fail(b, error->name, strempty(error->message));
                finish(b);
                return;
        }
        b->scope_bytes = b->target->mem_bytes;
        start_capture(b);
}

static void on_turn(Sandbox *s, Turn *t) {
        Rollback *b = (Rollback *) t;
        uint64_t mem = b->target->mem_bytes;

        int r = sandbox_check_running(s, &b->error);
        if (r >= 0)
                r = check_target(s, b->target, &b->error);
        if (r < 0) {
                finish(b);
                return;
        }
        b->scope_bytes = s->mem_bytes;
        /* From here on its limit may not be that for what it holds, which a restarted cubed has to know. */
        memcpy(s->priv->rollback_id, b->target->id, sizeof(s->priv->rollback_id));
        sandbox_save_soon(s);
        /* It will hold as much as it held then: the limit has to be there before. */
        if (mem <= s->mem_bytes) {
                start_capture(b);
                return;
        }
        r = scope_set_limits(s->priv->scope, scope_memory_max(mem), mem, 0, on_raised, b);
        if (r < 0) {
                fail_errno(b, r, NULL);
                finish(b);
        }
}

/* Nobody wanted this end: what was before the rollback is all that is left. */
static bool safety_is_wanted(const Rollback *b, const Sandbox *s) {
        VmmExitReason reason = s->priv->kill_reason;

        return b->safety && b->replaced && !s->manager->snapshots->stopping && reason != VMM_EXIT_KILLED && reason != VMM_EXIT_TIMEOUT &&
                reason != VMM_EXIT_STOP_TIMEOUT;
}

static void on_drop(Sandbox *s, Turn *t, const sd_bus_error *error) {
        Rollback *b = (Rollback *) t;

        b->sandbox = NULL;
        if (!b->lost && safety_is_wanted(b, s)) {
                sd_bus_error_free(&b->error);
                (void) sd_bus_error_setf(&b->error, BUS_ERROR_GUEST_FAILED, "%s: it was being rolled back. What it was before is kept as "
                                         "snapshot %s; go on from it by: cubectl create snapshot:%s", strempty(error->message),
                                         b->safety->id, b->safety->id);
                b->lost = true;
                audit_rollback_failed(s->manager->audit, s, b->safety, strempty(b->error.message));
        }
        b->capture = capture_free(b->capture);
        if (safety_is_wanted(b, s))
                keep_safety_copy(b->safety);
        if (b->done)
                b->done(s, b->lost ? &b->error : error, b->userdata);
        if (b->n_waits == 0)
                rollback_free(b);
}

static Rollback *rollback_new(Sandbox *s, Snapshot *target) {
        Rollback *b = new0(Rollback, 1);

        if (!b)
                return NULL;
        *b = (Rollback) { .turn.drop = on_drop, .sandbox = s, .target = target, .overlay_fd = -EBADF, .scope_bytes = s->mem_bytes };
        if (target)
                snapshot_use(target);
        return b;
}

int sandbox_rollback(Sandbox *s, Snapshot *snapshot, SandboxDone done, void *userdata, sd_bus_error *error) {
        int r = sandbox_check_running(s, error);
        if (r >= 0)
                r = check_target(s, snapshot, error);
        if (r < 0)
                return r;

        Rollback *b = rollback_new(s, snapshot);
        if (!b)
                return sd_bus_error_set_errno(error, ENOMEM);
        b->turn.start = on_turn;
        b->done = done;
        b->userdata = userdata;
        r = sandbox_take_turn(s, &b->turn, error);
        if (r < 0)
                rollback_free(b);
        return r;
}

/* A cubed that was restarted in one. */

static void on_turn_to_put_back(Sandbox *s, Turn *t) {
        Rollback *b = (Rollback *) t;

        if (vmm_gone(s))
                return;
        fail(b, BUS_ERROR_INTERNAL, "cubed was restarted meanwhile");
        put_back(b);
}

int sandbox_put_back(Sandbox *s, Snapshot *target, Snapshot *safety) {
        Rollback *b = rollback_new(s, target);

        if (!b)
                return -ENOMEM;
        snapshot_use(safety);
        b->safety = safety;
        b->replaced = true;
        b->turn.start = on_turn_to_put_back;
        vmm_client_hold(s->priv->vmm);
        int r = sandbox_take_first_turn(s, &b->turn);
        if (r < 0)
                rollback_free(b);
        return r;
}
