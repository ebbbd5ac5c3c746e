/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/console-ring.h"
#include "base/parse.h"
#include "daemon/adopt.h"
#include "daemon/audit.h"
#include "daemon/capture.h"
#include "daemon/id.h"
#include "daemon/log.h"
#include "daemon/sandbox-overlay.h"
#include "daemon/sandbox-private.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"
#include "net/net-client.h"

/* How long a VMM that runs may take to answer, between these bounds: who set BootTimeout= short for new guests does not mean to lose
 * those that run when they are busy, and who set none does not mean to wait for ever for one whose lifetime may be over. */
#define ANSWER_MIN_USEC (60 * USEC_PER_SEC)
#define ANSWER_MAX_USEC (600 * USEC_PER_SEC)

static uint64_t answer_usec(const Sandbox *s) {
        return MIN(MAX(s->manager->config.boot_timeout_usec, ANSWER_MIN_USEC), ANSWER_MAX_USEC);
}

/* The memory must be one that can't be cut off under a reader. */
static bool console_valid(int fd) {
        struct stat st;
        int seals = fcntl(fd, F_GET_SEALS);

        return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 && st.st_size >= (off_t) sizeof(ConsoleRing);
}

typedef struct Hello {
        uint32_t state;
        uint8_t id[SNAPSHOT_ID_BYTES];   /* of its uppermost memory layer; all zeros without one */
        bool overlay_is_new;             /* the one that had been made for it to go on with */
        const uint8_t *ready;            /* body of the frame with which the agent introduced itself */
        size_t ready_size;
} Hello;

static void take_descriptor(Sandbox *s, uint32_t role, int *fd, Hello *h) {
        struct SandboxPrivate *p = s->priv;
        int r;

        if (role == VMM_FD_CONSOLE && p->console_fd < 0 && console_valid(*fd))
                p->console_fd = TAKE_FD(*fd);
        else if (role == VMM_FD_DISK_OVERLAY && p->overlay_fd < 0) {
                r = sandbox_find_overlay(s, *fd);
                if (r < 0)
                        log_warning("Sandbox %s: the file that its disk writes to has lost its name", s->id);
                h->overlay_is_new = r > 0;
        }
}

static void take_record(Sandbox *s, const Tlv *t, Hello *h) {
        const uint8_t *frame;
        FrameHeader f;

        if (t->tag == VMM_TAG_STATE)
                (void) tlv_get_u32(t, &h->state);
        else if (t->tag == VMM_TAG_ID)
                (void) tlv_get_struct(t, h->id, sizeof(h->id));
        else if (t->tag == VMM_TAG_FRAME && frame_split(t->data, t->len, &f, &frame) >= 0 && f.type == AGENT_READY) {
                h->ready = frame;
                h->ready_size = f.len;
        }
}

static void parse_hello(Sandbox *s, const PacketBody *body, Hello *ret) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        uint32_t role;
        size_t i = 0;
        Tlv t;

        *ret = (Hello) { .state = _VMM_STATE_MAX };
        while (tlv_next(&reader, &t) > 0)
                if (t.tag != VMM_TAG_FD)
                        take_record(s, &t, ret);
                else if (i < body->n_fds) {
                        if (tlv_get_u32(&t, &role) >= 0)
                                take_descriptor(s, role, &body->fds[i], ret);
                        i++;
                }
}

/* Whether the guest went on with what was being saved tells its VMM: the snapshot is its uppermost layer, or it is not
 * wanted any more, for then the guest writes on to its files. */
static void settle_capture(Sandbox *s, const Hello *h) {
        struct SandboxPrivate *p = s->priv;
        Snapshot *n = snapshot_store_find(s->manager->snapshots, p->capture_id);

        if (n && h->state != VMM_STATE_PAUSED && memcmp(n->uuid, h->id, sizeof(n->uuid)) == 0) {
                log_info("Sandbox %s: snapshot %s was taken while cubed was restarted", s->id, n->id);
                sandbox_add_layers(s, n);
                (void) snapshot_sync(n, NULL, NULL);
        } else if (n) {
                log_info("Sandbox %s: snapshot %s came to nothing, cubed was restarted meanwhile", s->id, n->id);
                int r = snapshot_remove(n, NULL, NULL);
                if (r < 0)
                        log_warning_errno(r, "Snapshot %s can't be removed: %m", p->capture_id);
        }
        p->capture_id[0] = 0;
        sandbox_save_soon(s);
}

static bool runs_on(const Hello *h, const Snapshot *n) {
        return n && (h->state == VMM_STATE_RUNNING || h->state == VMM_STATE_STOPPING) && memcmp(n->uuid, h->id, sizeof(n->uuid)) == 0;
}

static void note_rolled_back(Sandbox *s, Snapshot *n, const char *what) {
        struct SandboxPrivate *p = s->priv;

        log_info("Sandbox %s: %s %s while cubed was restarted", s->id, what, n->id);
        sandbox_replace_layers(s, n);
        s->restored = true;
        s->mem_bytes = n->mem_bytes;
        p->capture_id[0] = p->rollback_id[0] = 0;
        sandbox_save_soon(s);
}

/* How far a rollback came tells its VMM as well: one whose guest runs on one of the two got there, one that was given
 * nothing yet goes on as after a snapshot that was not taken, and what is between is put back. 1: its VMM runs
 * there, and there is nothing more to do. 2: nor is there, but it is being put back. */
static int settle_rollback(Sandbox *s, const Hello *h) {
        Snapshot *safety = s->priv->pending[0], *target = s->priv->pending[1];

        if (runs_on(h, safety)) {
                note_rolled_back(s, safety, "a rollback was undone, to");
                return 1;
        }
        if (runs_on(h, target) && (h->overlay_is_new || s->memory_top != target)) {
                note_rolled_back(s, target, "it was rolled back to snapshot");
                return 1;
        }
        if (h->state == VMM_STATE_TORN || h->overlay_is_new) {
                int r = safety ? sandbox_put_back(s, target, safety) : -ENOENT;
                return r < 0 ? r : 2;
        }
        s->priv->rollback_id[0] = 0;
        return 0;
}

/* Found closed, by a rollback that is over. */
static void open_network(Sandbox *s) {
        int r = sandbox_network_open(s, NULL);

        if (r < 0)
                log_warning_errno(r, "The network of sandbox %s can't be opened: %m", s->id);
}

/* It runs. */
static void pay_debts(Sandbox *s) {
        open_network(s);
        if (s->priv->thaw_owed)
                sandbox_thaw(s);
        s->priv->thaw_owed = false;
        /* Its resume was not quite over. */
        if (s->disk_top && s->disk_top->kind == SNAPSHOT_PAUSE) {
                int r = snapshot_remove(s->disk_top, NULL, NULL);
                if (r < 0)
                        log_warning_errno(r, "Snapshot %s can't be removed: %m", s->disk_top->id);
        }
}

static void on_resumed(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        Sandbox *s = userdata;

        if (error >= 0)
                pay_debts(s);
        if (error >= 0 || error == -ECONNRESET || s->priv->exited)
                return;
        log_warning("Sandbox %s was paused when cubed ended and can't be made to run again, ending it: %s", s->id, message);
        sandbox_end(s, VMM_EXIT_LOST);
}

static const char *why_not_taken_over(const Sandbox *s, const Hello *h) {
        if (h->state == VMM_STATE_RUNNING || h->state == VMM_STATE_STOPPING || h->state == VMM_STATE_PAUSED)
                return NULL;
        if (h->state != VMM_STATE_TORN)
                return "it is in the wrong state";
        return *s->priv->rollback_id ? NULL : "its memory is torn: a rollback failed";
}

/* A rollback may have raised it; one that is put back settles it itself. */
static void settle_limit(Sandbox *s) {
        int r = sandbox_settle_limit(s);

        if (r < 0)
                log_warning_errno(r, "Sandbox %s: its memory limit could not be settled: %m", s->id);
}

static void settle(Sandbox *s, VmmClient *c, const Hello *h) {
        bool rolling = *s->priv->rollback_id;
        int r = *s->priv->rollback_id ? settle_rollback(s, h) : 0;

        if (r < 0) {
                log_error_errno(r, "Sandbox %s was being rolled back when cubed ended, and can't be put back, ending it: %m", s->id);
                sandbox_end(s, VMM_EXIT_ROLLBACK);
        }
        if (r == 0 && *s->priv->capture_id)
                settle_capture(s, h);
        sandbox_release_pending(s);
        if (rolling && (r == 0 || r == 1))
                settle_limit(s);
        if (h->state == VMM_STATE_STOPPING)
                sandbox_set_state(s, SANDBOX_STOPPING);
        if (r != 0) {
                if (r > 0 && !*s->priv->rollback_id)
                        open_network(s);
                /* Else it is let go as it has been put back. */
                if (r == 1)
                        vmm_client_let_go(c);
                return;
        }
        if (h->state != VMM_STATE_PAUSED) {
                pay_debts(s);
                vmm_client_let_go(c);
                return;
        }
        r = vmm_client_call(c, VMM_OP_RESUME, NULL, NULL, 0, answer_usec(s), on_resumed, s);
        if (r < 0) {
                on_resumed(c, r, strerror(-r), NULL, s);
                return;
        }
        /* Behind that, and not behind its answer: by then a snapshot that waited for its turn may hold what comes. */
        vmm_client_let_go(c);
}

static void on_hello(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        Sandbox *s = userdata;
        Hello h;

        if (error == -ECONNRESET || s->priv->exited)
                return; /* it ended: its exit tells why */
        parse_hello(s, body, &h);
        const char *why = error < 0 ? message : why_not_taken_over(s, &h);
        if (why) {
                log_warning("Sandbox %s: its VMM can't be taken over, ending it: %s", s->id, why);
                sandbox_end(s, VMM_EXIT_LOST);
                return;
        }
        if (!s->kernel_release && h.ready)
                sandbox_agent_ready(s, h.ready, h.ready_size);
        settle(s, c, &h);
        int r = sandbox_let_turns_go(s);
        if (r < 0) {
                log_warning_errno(r, "Sandbox %s: what waits for it can't be begun, ending it: %m", s->id);
                sandbox_end(s, VMM_EXIT_LOST);
        }
}

static int connect_vmm(Sandbox *s) {
        int r = sandbox_connect(s);
        if (r < 0)
                return r;
        /* It may be paused. What is for its guest waits until it runs. */
        vmm_client_hold(s->priv->vmm);
        return vmm_client_call(s->priv->vmm, VMM_OP_HELLO, NULL, NULL, 0, answer_usec(s), on_hello, s);
}

/* The pidfd of the VMM that state.json names, if that process is still the same. */
static int open_process(Sandbox *s) {
        uint64_t start;

        int fd = (int) syscall(SYS_pidfd_open, s->vmm_pid, 0);
        if (fd < 0)
                return -errno;
        if (process_start_time(s->vmm_pid, &start) < 0 || start != s->priv->vmm_start_time) {
                safe_close(fd);
                return -ESRCH;
        }
        return fd;
}

void sandbox_use_template(Sandbox *s) {
        TemplateStore *store = s->manager->templates;

        for (size_t i = 0; store && i < store->n_templates; i++)
                if (streq(store->templates[i]->id, s->template_id)) {
                        s->priv->template = store->templates[i];
                        template_use(s->priv->template);
                        return;
                }
        log_warning("Sandbox %s stands on template %s, which is gone", s->id, s->template_id);
}

static void keep_what_was_before(Sandbox *s) {
        Snapshot *safety = s->priv->pending[0];
        char why[160];

        if (!*s->priv->rollback_id || !safety)
                return;
        (void) snprintf(why, sizeof(why), "Sandbox %s ended while it was being rolled back. What it was before is kept as snapshot %s",
                        s->id, safety->id);
        audit_rollback_failed(s->manager->audit, s, safety, why);
        keep_safety_copy(safety);
}

/* A VMM that ended while nobody looked. */
static void report_dead(Sandbox *s) {
        VmmExitRecord record;

        if (s->builder)
                return;
        if (sandbox_in_making(s)) {
                audit_failed(s->manager->audit, s, "cubed ended while it was being created");
                log_info("Sandbox %s was being created when cubed ended, removed", s->id);
                return;
        }
        if (s->slot > 0)
                (void) net_client_quiesce(s->manager->net, s->slot, NULL, NULL);
        s->exit_reason = VMM_EXIT_LOST;
        if (sandbox_read_exit_record(s->priv->dir, &record)) {
                s->exit_reason = (VmmExitReason) record.reason;
                s->exit_status = record.status;
        }
        audit_exited(s->manager->audit, s);
        keep_what_was_before(s);
        log_info("Sandbox %s ended while cubed was away: %s", s->id, vmm_exit_reason_to_string(s->exit_reason));
}

static int adopt_process(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;
        Manager *m = s->manager;

        p->adopted = true;
        int r = uid_range_take(m->priv->uids, s->vmm_uid);
        if (r == -EBUSY)
                log_warning("Sandbox %s: another one has its uid %u", s->id, s->vmm_uid);
        if (r < 0)
                s->vmm_uid = 0; /* not ours to give back */
        r = sandbox_watch_process(s);
        if (r >= 0)
                r = scope_adopt(m->priv->units, s->scope_name, &p->scope);
        if (r >= 0)
                r = manager_add_sandbox(m, s);
        return r;
}

/* s is the manager's from here, whatever happens to it. */
static void adopt_running(Sandbox *s) {
        if (s->builder) {
                log_info("Builder %s lost its build when cubed ended, ending it", s->id);
                sandbox_end(s, VMM_EXIT_KILLED);
                return;
        }
        if (sandbox_in_making(s)) {
                sandbox_failf(s, BUS_ERROR_INTERNAL, "cubed ended while sandbox %s was being created", s->id);
                return;
        }
        if (s->untold) {
                log_info("Sandbox %s is a copy of which nobody was told when cubed ended, ending it", s->id);
                sandbox_end(s, VMM_EXIT_KILLED);
                return;
        }
        sandbox_use_template(s);
        s->priv->was_running = true;
        s->priv->step = STEP_RUNNING;
        s->priv->net_open = true;
        /* Without a sandbox.json its pause came to nothing. */
        if (s->state == SANDBOX_PAUSING) {
                s->state = SANDBOX_RUNNING;
                s->priv->thaw_owed = true;
                sandbox_save_soon(s);
        }
        /* A time-out may be over already, and clients do not know that we were away. */
        sandbox_hold_turns(s);
        int r = connect_vmm(s);
        if (r >= 0)
                r = sandbox_arm_deadline(s);
        if (r >= 0)
                r = sandbox_arm_checkpoints(s);
        /* What was asked of it before is not known. */
        sandbox_touch(s);
        if (r >= 0)
                r = sandbox_arm_idle(s);
        if (r < 0) {
                log_warning_errno(r, "Sandbox %s can't be taken over, ending it: %m", s->id);
                sandbox_end(s, VMM_EXIT_LOST);
                return;
        }
        audit_adopted(s->manager->audit, s);
}

/* What is left of its VMM goes, whatever that was at: sandbox.json says what it is. */
static int adopt_kept(Manager *m, const Sandbox *left) {
        _cleanup_(sandbox_freep) Sandbox *s = NULL;
        struct SandboxPrivate *p;

        int r = sandbox_find_kept(m, left->id, &s);
        if (r < 0)
                return log_error_errno(r, "The " SANDBOX_KEPT_FILE " of sandbox %s can't be read: %m", left->id);
        p = s->priv;
        p->process.pid = s->vmm_pid = left->vmm_pid;
        p->vmm_start_time = left->priv->vmm_start_time;
        p->process.pid_fd = open_process(s);
        if (p->process.pid_fd < 0) {
                sandbox_unmake(s);
                r = manager_add_sandbox(m, s);
                if (r >= 0)
                        TAKE_PTR(s);
                return r;
        }
        s->vmm_uid = left->vmm_uid;
        p->kept_as = s->state;
        sandbox_adopt_network(s, left);
        s->state = left->state;
        r = adopt_process(s);
        if (r < 0) {
                s->vmm_uid = 0;
                return log_error_errno(r, "Sandbox %s can't be watched, it is ended: %m", left->id);
        }
        if (s->state == SANDBOX_RESUMING)
                sandbox_failf(s, BUS_ERROR_INTERNAL, "cubed ended while sandbox %s was being resumed", s->id);
        else
                sandbox_end(s, VMM_EXIT_KILLED);
        TAKE_PTR(s);
        return 0;
}

static void end_scope(Manager *m, const char *id) {
        char scope[NAME_MAX + sizeof("cube-.scope")];

        (void) snprintf(scope, sizeof(scope), "cube-%s.scope", id);
        (void) units_kill(m->priv->units, scope);
}

static void adopt_one(Manager *m, const char *id, const char *dir) {
        _cleanup_(sandbox_freep) Sandbox *s = NULL;

        int r = sandbox_load(m, id, &s);
        if (r < 0) {
                /* Without a state there was no process yet, or it died at its gate with cubed. */
                if (r != -ENOENT) {
                        log_warning_errno(r, "The state of sandbox %s can't be read, ending what is left of it: %m", id);
                        end_scope(m, id);
                }
                sandbox_remove_files(dir);
                return;
        }
        if (sandbox_is_kept(m, id) && (s->state == SANDBOX_PAUSING || s->state == SANDBOX_RESUMING)) {
                if (adopt_kept(m, s) < 0)
                        end_scope(m, id);
                s->vmm_uid = 0;
                return;
        }
        /* It had been resumed: that was said before this could be removed. Or a pause was half way through writing it. */
        s->priv->kept = true;
        sandbox_forget_kept(s, NULL);
        uint32_t uid = s->vmm_uid;
        s->priv->process.pid = s->vmm_pid;
        s->priv->process.pid_fd = open_process(s);
        if (s->priv->process.pid_fd < 0) {
                report_dead(s);
                sandbox_remove_files(dir);
                s->vmm_uid = 0;
                return;
        }
        r = adopt_process(s);
        if (r < 0) {
                log_error_errno(r, "Sandbox %s can't be watched, it is left alone: %m", id);
                s->vmm_uid = 0;
                return;
        }
        log_debug("Sandbox %s: found VMM %d of uid %u", id, (int) s->vmm_pid, uid);
        adopt_running(TAKE_PTR(s));
}

int manager_adopt_sandboxes(Manager *m) {
        _cleanup_free_ char *parent = NULL;
        struct dirent *e;

        if (asprintf(&parent, "%s/sandbox", m->config.runtime_directory) < 0)
                return -ENOMEM;
        DIR *d = opendir(parent);
        if (!d)
                return errno == ENOENT ? 0 : -errno;
        while ((e = readdir(d))) {
                _cleanup_free_ char *dir = NULL;

                if (!sandbox_id_valid(e->d_name))
                        continue;
                if (asprintf(&dir, "%s/%s", parent, e->d_name) < 0) {
                        closedir(d);
                        return -ENOMEM;
                }
                adopt_one(m, e->d_name, dir);
        }
        closedir(d);
        return 0;
}
