/* SPDX-License-Identifier: Apache-2.0 */

/* The steps of a capture: files are made while the guest runs; then its VMM is paused and writes its state, cube-stored
 * copies the private pages, the overlay of the disk gets a name, and the VMM goes on with both as layers beneath it.
 *
 * Until that last step has happened everything can be undone by a plain RESUME: then the guest writes on to what it wrote
 * to before. Which of both happened is also what a cubed that was restarted meanwhile finds out (adopt.c). */

#include <endian.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "base/fd-util.h"
#include "daemon/audit.h"
#include "daemon/capture.h"
#include "daemon/log.h"
#include "daemon/sandbox-attach.h"
#include "daemon/sandbox-overlay.h"
#include "dbus/bus-errors.h"

/* For the VMM: its devices come to rest, it writes a few hundred KiB, it maps a file. A busy host may take its time. */
#define CALL_TIMEOUT_USEC (30 * USEC_PER_SEC)

struct Capture {
        Sandbox *sandbox;          /* NULL: nobody waits any more */
        SnapshotKind kind;
        char *name;
        bool stay_paused, no_memory;
        CaptureDone done;
        void *userdata;

        unsigned n_waits;          /* callbacks that will come; it is freed after the last one */
        Snapshot *snapshot;
        Snapshot *flattening;      /* in use by us meanwhile */
        CaptureFigures figures;
        bool published;
        bool whole_chain;          /* the VMM gets all layers anew: it can't take another one */
        bool may_be_paused;
        bool cancelled;            /* it did not fail: it is not wanted any more */
        int state_fd, memory_fd, overlay_fd;
        uint64_t begin_usec;       /* CLOCK_MONOTONIC, of the pause */
        sd_bus_error error;        /* why it is being undone */
};

/* Of one that did not come to be. */
static void drop_snapshot(Capture *c) {
        Snapshot *n = TAKE_PTR(c->snapshot);

        if (!n)
                return;
        if (!c->published) {
                snapshot_free(n);
                return;
        }
        /* Nobody asked for it any more: it goes with our use. */
        n->kind = SNAPSHOT_FORK;
        snapshot_release(n);
}

static void capture_destroy(Capture *c) {
        drop_snapshot(c);
        close_many((int[]) { c->state_fd, c->memory_fd, c->overlay_fd }, 3);
        sd_bus_error_free(&c->error);
        free(c->name);
        free(c);
}

/* The end of each callback: false when nobody waits any more, and then it may be gone. */
static bool capture_wanted(Capture *c) {
        c->n_waits--;
        if (c->sandbox)
                return true;
        if (c->n_waits == 0)
                capture_destroy(c);
        return false;
}

/* Its VMM is gone or about to go: its end, which comes, is told by who has the turn. */
static bool vmm_gone(const Sandbox *s) {
        return !s->priv->vmm || s->priv->vmm_lost || s->priv->exited;
}

static int call(Capture *c, VmmOp op, const TlvWriter *w, const int *fds, size_t n_fds, VmmReply reply) {
        if (!c->sandbox->priv->vmm)
                return -ENOTCONN;
        int r = vmm_client_call(c->sandbox->priv->vmm, op, w, fds, n_fds, CALL_TIMEOUT_USEC, reply, c);
        c->n_waits += r >= 0;
        return r;
}

/* Failing. */

static void clear_mark(Sandbox *s) {
        if (!*s->priv->capture_id)
                return;
        s->priv->capture_id[0] = 0;
        sandbox_save_soon(s);
}

static void let_guest_go(const Sandbox *s) {
        if (s->priv->vmm)
                vmm_client_let_go(s->priv->vmm);
}

static void tell_failed(Sandbox *s, SnapshotKind kind, const sd_bus_error *error) {
        const char *why = strempty(error ? error->message : NULL);

        if (kind == SNAPSHOT_CHECKPOINT)
                sandbox_checkpoint_failed(s, why);
        else
                audit_snapshot_failed(s->manager->audit, s, why);
}

static void finish_failed(Capture *c) {
        Sandbox *s = c->sandbox;

        sandbox_drop_new_overlay(s);
        drop_snapshot(c);
        clear_mark(s);
        let_guest_go(s);
        if (!c->cancelled)
                tell_failed(s, c->kind, &c->error);
        c->done(s, &c->error, NULL, c->userdata);
        capture_destroy(c);
}

/* Nothing brings this guest back. Its end is told by who has the turn. */
static void give_up(Capture *c, const char *why) {
        log_error("Sandbox %s can't be made to run again after a snapshot failed, ending it: %s", c->sandbox->id, why);
        sandbox_end(c->sandbox, VMM_EXIT_VMM_ERROR);
}

static void finish_captured(Capture *c);

/* The VMM has gone on with what was saved, and only its answer was late or lost. */
static bool goes_on_with_it(const Capture *c, const uint8_t id[static SNAPSHOT_ID_BYTES]) {
        return c->published && !c->cancelled && !c->no_memory && memcmp(id, c->snapshot->uuid, SNAPSHOT_ID_BYTES) == 0;
}

static void on_state_after_undo(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        uint8_t id[SNAPSHOT_ID_BYTES] = {};
        uint32_t state = _VMM_STATE_MAX;
        Capture *c = userdata;
        Tlv t;

        if (!capture_wanted(c) || vmm_gone(c->sandbox))
                return;
        while (tlv_next(&reader, &t) > 0)
                if (t.tag == VMM_TAG_STATE)
                        (void) tlv_get_u32(&t, &state);
                else if (t.tag == VMM_TAG_ID)
                        (void) tlv_get_struct(&t, id, sizeof(id));
        if (error < 0)
                give_up(c, message);
        else if ((state == VMM_STATE_RUNNING || state == VMM_STATE_STOPPING) && goes_on_with_it(c, id))
                finish_captured(c);
        else if (state == VMM_STATE_RUNNING || state == VMM_STATE_STOPPING)
                finish_failed(c);
        else
                give_up(c, state == VMM_STATE_TORN ? "its memory is torn" : "it stays paused");
}

static void on_undone(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        Capture *c = userdata;

        if (!capture_wanted(c) || vmm_gone(c->sandbox))
                return;
        if (error >= 0) {
                finish_failed(c);
                return;
        }
        /* It may never have been paused. */
        int r = call(c, VMM_OP_HELLO, NULL, NULL, 0, on_state_after_undo);
        if (r < 0)
                give_up(c, strerror(-r));
}

static void capture_undo(Capture *c) {
        if (vmm_gone(c->sandbox))
                return;
        if (!c->may_be_paused) {
                finish_failed(c);
                return;
        }
        int r = call(c, VMM_OP_RESUME, NULL, NULL, 0, on_undone);
        if (r < 0 && !vmm_gone(c->sandbox))
                give_up(c, strerror(-r));
}

static void set_error(const Sandbox *s, sd_bus_error *error, int r, const char *what, const char *message) {
        const char *text = isempty(message) ? strerror(-r) : message;

        if (sd_bus_error_is_set(error))
                return;
        if (r == -ENOSPC || r == -EDQUOT)
                (void) sd_bus_error_setf(error, BUS_ERROR_NO_RESOURCES, "No snapshot of sandbox %s: %s: no space left in %s; remove "
                                         "snapshots or templates, or make room", s->id, what, s->manager->config.state_directory);
        else if (r == -ENOTCONN || r == -ECONNRESET)
                (void) sd_bus_error_setf(error, BUS_ERROR_INTERNAL, "No snapshot of sandbox %s: %s: cube-stored ended; it is being "
                                         "started again, try again", s->id, what);
        else if (r == -ETIMEDOUT)
                (void) sd_bus_error_setf(error, BUS_ERROR_GUEST_TIMEOUT, "No snapshot of sandbox %s: %s: %s", s->id, what, text);
        else
                (void) sd_bus_error_setf(error, bus_error_of_errno(r), "No snapshot of sandbox %s: %s: %s", s->id, what, text);
}

static void capture_fail(Capture *c, int r, const char *what, const char *message) {
        set_error(c->sandbox, &c->error, r, what, message);
        capture_undo(c);
}

static int check_state(const Sandbox *s, sd_bus_error *error) {
        if ((s->state != SANDBOX_RUNNING && s->state != SANDBOX_PAUSING) || vmm_gone(s))
                return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING, "Sandbox %s is %s, not running", s->id,
                                         s->state == SANDBOX_RUNNING ? "ending" : sandbox_state_to_string(s->state));
        return 0;
}

/* Before each step: somebody may have stopped it. */
static bool capture_goes_on(Capture *c) {
        if (check_state(c->sandbox, &c->error) >= 0)
                return true;
        capture_undo(c);
        return false;
}

/* Going on. */

void sandbox_set_tops(Sandbox *s, Snapshot *disk, Snapshot *memory) {
        Snapshot *old_disk = s->disk_top, *old_memory = s->memory_top;

        if (disk)
                snapshot_use(disk);
        if (memory)
                snapshot_use(memory);
        s->disk_top = disk;
        s->memory_top = memory;
        if (old_disk)
                snapshot_release(old_disk);
        if (old_memory)
                snapshot_release(old_memory);
}

void sandbox_release_pending(Sandbox *s) {
        for (size_t i = 0; i < ELEMENTSOF(s->priv->pending); i++) {
                Snapshot *n = TAKE_PTR(s->priv->pending[i]);
                if (n)
                        snapshot_release(n);
        }
}

static void on_flattened_behind(Snapshot *n, int error, void *userdata) {
        if (error < 0 && error != -ECONNRESET)
                log_warning_errno(error, "The layers of snapshot %s could not be merged: %m", n->id);
}

void snapshot_flatten_behind(Snapshot *n) {
        if (snapshot_depth(n) < SNAPSHOT_FLATTEN_AT)
                return;
        int r = snapshot_flatten(n, on_flattened_behind, NULL);
        if (r < 0)
                log_warning_errno(r, "The layers of snapshot %s can't be merged now: %m", n->id);
}

static unsigned chain_length(int n) {
        return n > 0 ? (unsigned) n : 0;
}

static bool vmm_is_full(const Sandbox *s) {
        return s->priv->n_memory_layers >= SNAPSHOT_LAYERS_MAX || s->priv->n_disk_layers >= VMM_DISK_LAYERS_MAX;
}

void sandbox_count_layers(Sandbox *s) {
        Snapshot *chain[VMM_DISK_LAYERS_MAX];

        s->priv->n_memory_layers = s->memory_top ? chain_length(snapshot_memory_chain(s->memory_top, chain, SNAPSHOT_LAYERS_MAX)) : 0;
        s->priv->n_disk_layers = s->disk_top ? chain_length(snapshot_disk_chain(s->disk_top, chain, VMM_DISK_LAYERS_MAX)) : 0;
}

void sandbox_add_layers(Sandbox *s, Snapshot *n) {
        bool anew = vmm_is_full(s);

        s->priv->n_memory_layers++;
        s->priv->n_disk_layers++;
        sandbox_set_tops(s, n, n);
        if (anew)
                sandbox_count_layers(s);
}

void sandbox_replace_layers(Sandbox *s, Snapshot *n) {
        sandbox_set_tops(s, n, n);
        sandbox_count_layers(s);
}

static void finish_captured(Capture *c) {
        Sandbox *s = c->sandbox;
        Snapshot *n = TAKE_PTR(c->snapshot);

        c->figures.pause_usec = clock_usec(CLOCK_MONOTONIC) - c->begin_usec;
        sandbox_add_layers(s, n);
        if (c->whole_chain)
                sandbox_count_layers(s);
        sandbox_take_overlay(s, TAKE_FD(c->overlay_fd));
        s->priv->capture_id[0] = 0;
        sandbox_save_soon(s);
        vmm_client_let_go(s->priv->vmm);
        snapshot_flatten_behind(n);
        c->done(s, NULL, n, c->userdata);
        snapshot_release(n);
        capture_destroy(c);
}

static void send_resume(Capture *c);

static void on_resumed(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        Capture *c = userdata;

        if (!capture_wanted(c) || vmm_gone(c->sandbox))
                return;
        if (error == -E2BIG && !c->whole_chain) {
                /* Its layers have too many pieces together; merged ones have fewer. */
                c->whole_chain = true;
                send_resume(c);
                return;
        }
        if (error < 0) {
                capture_fail(c, error, "its VMM did not go on with the saved memory", message);
                return;
        }
        finish_captured(c);
}

static int attach_layers(Capture *c, Attached *a, sd_bus_error *error) {
        int r = c->whole_chain ? attach_memory_layers(a, c->snapshot, error) :
                                 attach_snapshot_file(a, c->snapshot, VMM_FD_LAYER, SNAPSHOT_FILE_MEMORY, error);
        if (r >= 0)
                r = c->whole_chain ? attach_disk_layers(a, c->snapshot, error) :
                                     attach_snapshot_file(a, c->snapshot, VMM_FD_DISK_FROZEN, SNAPSHOT_FILE_DISK, error);
        return r < 0 ? r : attach(a, VMM_FD_DISK_OVERLAY, c->overlay_fd);
}

static void send_resume(Capture *c) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);
        _cleanup_attached_ Attached a = { .writer = &w };

        int r = attach_layers(c, &a, &c->error);
        if (r >= 0)
                r = call(c, VMM_OP_RESUME, &w, a.fds, a.n, on_resumed);
        if (r < 0)
                capture_fail(c, r, "its VMM can't go on with the saved memory", NULL);
}

void capture_cancel(Capture *c, const sd_bus_error *why, CaptureDone done, void *userdata) {
        c->done = done;
        c->userdata = userdata;
        c->cancelled = true;
        (void) sd_bus_error_copy(&c->error, why);
        capture_undo(c);
}

CaptureFigures capture_figures(const Capture *c) {
        return c->figures;
}

int capture_take_overlay(Capture *c) {
        return TAKE_FD(c->overlay_fd);
}

/* Its name in state.json first: who finds it without one takes it for somebody's. */
static int publish(Capture *c) {
        Sandbox *s = c->sandbox;

        int r = snapshot_link_file(c->snapshot, SNAPSHOT_FILE_DISK, s->priv->overlay_fd);
        if (r < 0)
                return r;
        memcpy(s->priv->capture_id, c->snapshot->id, sizeof(s->priv->capture_id));
        r = sandbox_save(s);
        if (r >= 0)
                r = snapshot_publish(c->snapshot);
        c->published = r >= 0;
        return r;
}

static void finish_saved(Capture *c) {
        int r = publish(c);

        if (r < 0)
                capture_fail(c, r, "writing its description", NULL);
        else if (c->stay_paused)
                c->done(c->sandbox, NULL, c->snapshot, c->userdata);
        else
                send_resume(c);
}

static void on_memory_saved(int error, uint64_t data_bytes, uint64_t zero_bytes, void *userdata) {
        Capture *c = userdata;

        if (!capture_wanted(c) || !capture_goes_on(c))
                return;
        if (error < 0) {
                capture_fail(c, error, "saving its memory", NULL);
                return;
        }
        c->figures.n_pages = data_bytes / SNAPSHOT_PAGE_BYTES;
        finish_saved(c);
}

/* Of a VMM, which may be in the hands of its guest. */
static int parse_runs(const Tlv *t, uint64_t mem_bytes, VmmRun **ret, size_t *ret_n) {
        size_t n = t->len / sizeof(VmmRun);
        uint64_t end = 0, total = 0;

        if (t->len % sizeof(VmmRun) != 0 || n > SNAPSHOT_LAYER_RUNS_MAX)
                return -EBADMSG;
        _cleanup_free_ VmmRun *runs = new0(VmmRun, n + 1);
        if (!runs)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                VmmRun g;

                memcpy(&g, t->data + i * sizeof(g), sizeof(g));
                g = (VmmRun) { le64toh(g.gpa), le64toh(g.bytes), le64toh(g.hva) };
                if (g.gpa < end || g.bytes == 0 || g.bytes > mem_bytes - total || (g.gpa | g.bytes) % SNAPSHOT_PAGE_BYTES != 0 ||
                    g.bytes > UINT64_MAX - g.gpa)
                        return -EBADMSG;
                end = g.gpa + g.bytes;
                total += g.bytes;
                runs[i] = g;
        }
        *ret = TAKE_PTR(runs);
        *ret_n = n;
        return 0;
}

static int save_memory(Capture *c, const PacketBody *body) {
        static const uint8_t none[SNAPSHOT_ID_BYTES];
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        _cleanup_free_ VmmRun *runs = NULL;
        Sandbox *s = c->sandbox;
        StoreMemory m = { .pid_fd = s->priv->process.pid_fd, .mem_bytes = s->boot_mem_bytes + s->plug_bytes };
        int r = 0;
        Tlv t;

        while (r >= 0 && tlv_next(&reader, &t) > 0)
                if (t.tag == VMM_TAG_ID)
                        r = tlv_get_struct(&t, m.id, sizeof(m.id));
                else if (t.tag == VMM_TAG_RUNS && !runs)
                        r = parse_runs(&t, m.mem_bytes, &runs, &m.n_runs);
        if (r >= 0 && (!runs || memcmp(m.id, none, sizeof(none)) == 0))
                r = -EBADMSG;
        if (r < 0)
                return r;
        m.runs = runs;
        if (s->memory_top)
                memcpy(m.parent, s->memory_top->uuid, sizeof(m.parent));
        memcpy(c->snapshot->uuid, m.id, sizeof(m.id));
        r = store_client_save_memory(s->manager->store, &m, c->memory_fd, on_memory_saved, c);
        c->n_waits += r >= 0;
        return r;
}

static void on_saved(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        Capture *c = userdata;

        if (!capture_wanted(c) || vmm_gone(c->sandbox) || !capture_goes_on(c))
                return;
        if (error < 0) {
                capture_fail(c, error, "its VMM could not save its state", message);
                return;
        }
        int r = save_memory(c, body);
        if (r < 0)
                capture_fail(c, r, r == -EBADMSG ? "what its VMM says about its memory makes no sense" : "saving its memory", NULL);
}

/* Of this process, and not of one that has its pid by now. */
static int open_pagemap(const Sandbox *s) {
        char path[64];

        (void) snprintf(path, sizeof(path), "/proc/%d/pagemap", (int) s->vmm_pid);
        int fd = open(path, O_RDONLY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (syscall(SYS_pidfd_send_signal, s->priv->process.pid_fd, 0, NULL, 0) < 0) {
                safe_close(fd);
                return -ESRCH;
        }
        return fd;
}

static int send_save(Capture *c) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(256);
        _cleanup_attached_ Attached a = { .writer = &w };

        int r = attach(&a, VMM_FD_STATE, c->state_fd);
        if (r >= 0)
                r = attach_opened(&a, VMM_FD_PAGEMAP, open_pagemap(c->sandbox));
        return r < 0 ? r : call(c, VMM_OP_SAVE, &w, a.fds, a.n, on_saved);
}

static void on_paused(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
        Capture *c = userdata;

        if (!capture_wanted(c) || vmm_gone(c->sandbox) || !capture_goes_on(c))
                return;
        if (error < 0) {
                capture_fail(c, error, "its VMM did not pause", message);
                return;
        }
        c->snapshot->created_usec = clock_usec(CLOCK_REALTIME);
        if (c->no_memory) {
                finish_saved(c);
                return;
        }
        int r = send_save(c);
        if (r < 0)
                capture_fail(c, r, "asking its VMM for its state", NULL);
}

static int capture_pause(Capture *c) {
        Sandbox *s = c->sandbox;

        vmm_client_hold(s->priv->vmm);
        c->begin_usec = clock_usec(CLOCK_MONOTONIC);
        int r = call(c, VMM_OP_PAUSE, NULL, NULL, 0, on_paused);
        if (r < 0)
                vmm_client_let_go(s->priv->vmm);
        c->may_be_paused = r >= 0;
        return r;
}

/* Starting. */

static int copy_string(char **field, const char *value) {
        if (!value)
                return 0;
        *field = strdup(value);
        return *field ? 0 : -ENOMEM;
}

static int describe(const Capture *c, Snapshot *n) {
        Sandbox *s = c->sandbox;

        n->owner_uid = s->owner_uid;
        tenant_name_copy(n->tenant, s->tenant);
        n->has_memory = !c->no_memory;
        if (c->kind == SNAPSHOT_CHECKPOINT)
                n->number = ++s->priv->checkpoint_number;
        n->mem_bytes = s->mem_bytes;
        n->boot_mem_bytes = s->boot_mem_bytes;
        n->plug_bytes = s->plug_bytes;
        n->disk_bytes = s->disk_bytes;
        n->cpu_quota_usec = s->cpu_quota_usec;
        n->cpus = s->cpus;
        int r = copy_string(&n->name, c->name);
        if (r >= 0)
                r = copy_string(&n->sandbox_id, s->id);
        if (r >= 0)
                r = copy_string(&n->template_id, s->template_id);
        if (r >= 0)
                r = copy_string(&n->template_name, s->template_name);
        return r < 0 ? r : snapshot_set_parents(n, s->disk_top, c->no_memory ? NULL : s->memory_top);
}

static int make_files(Capture *c) {
        int r = snapshot_new(c->sandbox->manager->snapshots, c->kind, &c->snapshot);
        if (r >= 0)
                r = describe(c, c->snapshot);
        if (r >= 0 && !c->no_memory)
                r = snapshot_create_file(c->snapshot, SNAPSHOT_FILE_STATE, &c->state_fd);
        if (r >= 0 && !c->no_memory)
                r = snapshot_create_file(c->snapshot, SNAPSHOT_FILE_MEMORY, &c->memory_fd);
        if (r >= 0)
                r = sandbox_new_overlay(c->sandbox, &c->overlay_fd);
        return r;
}

/* Which of those that the sandbox runs on can't have another layer above it, before its chain is made shorter. */
static Snapshot *find_too_long(const Sandbox *s) {
        Snapshot *chain[VMM_DISK_LAYERS_MAX];

        if (s->disk_top && snapshot_disk_chain(s->disk_top, chain, VMM_DISK_LAYERS_MAX - 1) < 0)
                return s->disk_top;
        if (s->memory_top && snapshot_memory_chain(s->memory_top, chain, SNAPSHOT_LAYERS_MAX - 1) < 0)
                return s->memory_top;
        return NULL;
}

static int flatten_first(Capture *c, Snapshot *n);

static int capture_start(Capture *c) {
        Snapshot *n = find_too_long(c->sandbox);

        if (n)
                return flatten_first(c, n);
        c->whole_chain = vmm_is_full(c->sandbox);
        int r = make_files(c);
        return r < 0 ? r : capture_pause(c);
}

static void on_flattened(Snapshot *n, int error, void *userdata) {
        Capture *c = userdata;
        Snapshot *flat = c->flattening;

        c->flattening = NULL;
        if (capture_wanted(c) && capture_goes_on(c)) {
                if (error >= 0 && find_too_long(c->sandbox) == n)
                        error = -E2BIG;
                if (error >= 0)
                        error = capture_start(c);
                if (error < 0)
                        capture_fail(c, error, "merging the layers that it stands on", NULL);
        }
        snapshot_release(flat);
}

static int flatten_first(Capture *c, Snapshot *n) {
        snapshot_use(n);
        c->flattening = n;
        int r = snapshot_flatten(n, on_flattened, c);
        if (r < 0) {
                c->flattening = NULL;
                snapshot_release(n);
                return r;
        }
        c->n_waits++;
        return 0;
}

static int check_sandbox(const Sandbox *s, sd_bus_error *error) {
        int r = check_state(s, error);
        if (r < 0)
                return r;
        if (s->priv->layers_unknown || s->priv->overlay_fd < 0)
                return sd_bus_error_setf(error, BUS_ERROR_INTERNAL, "There can be no snapshot of sandbox %s: a cubed that was started "
                                         "while it ran could not find out what its disk stands on", s->id);
        return 0;
}

int sandbox_capture(Sandbox *s, const CaptureSpec *spec, CaptureDone done, void *userdata, Capture **ret, sd_bus_error *error) {
        int r = check_sandbox(s, error);
        if (r < 0) {
                tell_failed(s, spec->kind, error);
                return r;
        }

        Capture *c = new0(Capture, 1);
        if (!c)
                return sd_bus_error_set_errno(error, ENOMEM);
        *c = (Capture) {
                .sandbox = s,
                .kind = spec->kind,
                .stay_paused = spec->stay_paused,
                .no_memory = spec->no_memory,
                .done = done,
                .userdata = userdata,
                .state_fd = -EBADF,
                .memory_fd = -EBADF,
                .overlay_fd = -EBADF,
        };
        r = copy_string(&c->name, spec->name);
        if (r >= 0)
                r = capture_start(c);
        if (r < 0) {
                set_error(s, error, r, "preparing its files", NULL);
                sandbox_drop_new_overlay(s);
                tell_failed(s, spec->kind, error);
                capture_destroy(c);
                return r;
        }
        *ret = c;
        return 0;
}

void capture_end(Capture *c) {
        Sandbox *s = c->sandbox;

        assert(c->n_waits == 0);
        clear_mark(s);
        let_guest_go(s);
        snapshot_release(TAKE_PTR(c->snapshot));
        capture_destroy(c);
}

void capture_leave(Capture *c) {
        assert(c->n_waits == 0);
        capture_destroy(c);
}

static void on_nobody_waits(VmmClient *v, int error, const char *message, const PacketBody *body, void *userdata) {
}

Capture *capture_free(Capture *c) {
        if (!c)
                return NULL;

        Sandbox *s = TAKE_PTR(c->sandbox);
        /* cubed goes down: the guest runs on, and what became of this the next cubed finds out. */
        if (c->may_be_paused && !vmm_gone(s))
                (void) vmm_client_call(s->priv->vmm, VMM_OP_RESUME, NULL, NULL, 0, CALL_TIMEOUT_USEC, on_nobody_waits, NULL);
        if (c->n_waits == 0)
                capture_destroy(c);
        return NULL;
}
