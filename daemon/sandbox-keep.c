/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes without a VMM: what is known of one that is paused or failed lies in sandboxes/<id>/sandbox.json of the state
 * directory, and its disk and memory in the snapshot that this names.
 *
 * The file decides. Written while the VMM stands still, it makes the sandbox a paused one whatever becomes of cubed; and
 * one that is being resumed is paused for as long as state.json does not say that it runs. Only then does the file go,
 * and only when that has reached the disk the snapshot. */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "daemon/adopt.h"
#include "daemon/host-network.h"
#include "daemon/log.h"
#include "daemon/sandbox-overlay.h"
#include "daemon/sandbox-private.h"
#include "daemon/store-client.h"

#define FILE_NEW SANDBOX_KEPT_FILE ".new"

typedef char KeptPath[sizeof(SANDBOXES_DIRECTORY "//" FILE_NEW) + sizeof(((Sandbox *) NULL)->id)];

typedef struct KeepRequest {
        SandboxState state;
        Snapshot *on;              /* in use by us */
        KeepDone done;
        void *userdata;
} KeepRequest;

struct KeepWrite {
        Manager *manager;
        Sandbox *sandbox;          /* NULL: it is gone */
        char id[sizeof(((Sandbox *) NULL)->id)];
        KeepRequest now, next;
        bool again;                /* next is to come */
};

static const char *kept_path(const char *id, const char *name, KeptPath ret) {
        (void) snprintf(ret, sizeof(KeptPath), SANDBOXES_DIRECTORY "/%s%s%s", id, name ? "/" : "", strempty(name));
        return ret;
}

/* An error: sandbox.json may be there still. */
static int unlink_kept(const Manager *m, const char *id) {
        KeptPath path;
        int r = 0;

        (void) unlinkat(m->priv->state_fd, kept_path(id, FILE_NEW, path), 0);
        if (unlinkat(m->priv->state_fd, kept_path(id, SANDBOX_KEPT_FILE, path), 0) < 0 && errno != ENOENT && errno != ENOTDIR)
                r = log_warning_errno(errno, "Sandbox %s: its " SANDBOX_KEPT_FILE " can't be removed; a cubed that is started takes it to be paused: %m",
                                      id);
        (void) unlinkat(m->priv->state_fd, kept_path(id, NULL, path), AT_REMOVEDIR);
        return r;
}

static int open_parent(const Manager *m) {
        int fd = openat(m->priv->state_fd, SANDBOXES_DIRECTORY, O_RDONLY|O_DIRECTORY|O_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

/* cubed goes down: what its requests came to is for the next one to find. */
static bool going_down(const Manager *m) {
        return !m->snapshots || m->snapshots->stopping;
}

/* Until it is certain that no start of cubed finds a sandbox.json any more, the snapshot that it names stays whole: one
 * that came back with a crash of the host would be a failed sandbox that nobody can resume. */

typedef struct Forgetting {
        Manager *manager;
        Snapshot *paused;
        struct Forgetting *next; /* in the manager's list, while there is no cube-stored */
} Forgetting;

static void on_forgotten(int error, void *userdata) {
        _cleanup_free_ Forgetting *f = userdata;
        Manager *m = f->manager;
        Snapshot *n = f->paused;

        if ((error == -ECONNRESET || error == -ENOTCONN) && !going_down(m)) {
                f->next = m->priv->forgetting;
                m->priv->forgetting = TAKE_PTR(f);
                return;
        }
        if (error < 0 && !going_down(m)) {
                log_warning_errno(error, "Snapshot %s stays until cubed is started again: that nobody is paused in it may not have reached the disk: %m",
                                  n->id);
                return;
        }
        /* With its last use it goes by itself. */
        if (error >= 0 && n->n_users > 1 && n->kind == SNAPSHOT_PAUSE && !going_down(m)) {
                int r = snapshot_remove(n, NULL, NULL);
                if (r < 0)
                        log_warning_errno(r, "Snapshot %s can't be removed: %m", n->id);
        }
        snapshot_release(n);
}

static void sync_forgetting(Forgetting *f) {
        _cleanup_close_ int fd = open_parent(f->manager);

        int r = fd < 0 ? fd : store_client_sync(f->manager->store, fd, on_forgotten, f);
        if (r < 0)
                on_forgotten(r, f);
}

/* unlinked: what unlink_kept() gave. */
static void forget_later(Manager *m, Snapshot *paused, int unlinked) {
        Forgetting *f = new0(Forgetting, 1);

        paused->forgotten = true;
        snapshot_use(paused);
        if (!f) {
                log_oom();
                return;
        }
        *f = (Forgetting) { .manager = m, .paused = paused };
        if (unlinked < 0)
                on_forgotten(unlinked, f);
        else
                sync_forgetting(f);
}

void sandbox_forget_again(Manager *m) {
        Forgetting *f = TAKE_PTR(m->priv->forgetting);

        while (f) {
                Forgetting *next = f->next;
                sync_forgetting(f);
                f = next;
        }
}

void sandbox_forget_none(Manager *m) {
        Forgetting *f;

        while (m->priv && (f = m->priv->forgetting)) {
                m->priv->forgetting = f->next;
                if (m->snapshots)
                        snapshot_release(f->paused);
                free(f);
        }
}

/* Writing. */

static int write_start(KeepWrite *w);

static void write_finish(KeepWrite *w, int error) {
        KeepRequest now = w->now;
        Sandbox *s = w->sandbox;

        if (!going_down(w->manager) && (!s || !s->priv->kept)) {
                int r = unlink_kept(w->manager, w->id);
                forget_later(w->manager, now.on, r);
        }
        if (error < 0 && !now.done && s && s->priv->kept)
                log_warning_errno(error, "Sandbox %s: failed to write its " SANDBOX_KEPT_FILE ": %m", w->id);
        if (now.done)
                now.done(error, now.userdata);
        if (w->manager->snapshots)
                snapshot_release(now.on);
        if (w->again) {
                w->again = false;
                w->now = w->next;
                /* Of one that was forgotten meanwhile even the snapshot may be gone. */
                int r = w->sandbox && w->sandbox->priv->kept ? write_start(w) : -ECANCELED;
                if (r < 0)
                        write_finish(w, r);
                return;
        }
        if (w->sandbox)
                w->sandbox->priv->keep_write = NULL;
        free(w);
}

static void on_parent_synced(int error, void *userdata) {
        write_finish(userdata, error);
}

static void on_renamed(int error, void *userdata) {
        KeepWrite *w = userdata;

        if (error >= 0) {
                _cleanup_close_ int fd = open_parent(w->manager);
                error = fd < 0 ? fd : store_client_sync(w->manager->store, fd, on_parent_synced, w);
        }
        if (error < 0)
                write_finish(w, error);
}

static void on_synced(int error, void *userdata) {
        KeepWrite *w = userdata;
        KeptPath from, to;

        if (error >= 0)
                error = store_client_rename(w->manager->store, kept_path(w->id, FILE_NEW, from),
                                            kept_path(w->id, SANDBOX_KEPT_FILE, to), on_renamed, w);
        if (error < 0)
                write_finish(w, error);
}

static int write_start(KeepWrite *w) {
        int state_fd = w->manager->priv->state_fd;
        _cleanup_free_ char *text = NULL;
        KeptPath path;

        int r = sandbox_format_kept(w->sandbox, w->now.state, w->now.on, &text);
        if (r < 0)
                return r;
        if (mkdirat(state_fd, kept_path(w->id, NULL, path), 0700) < 0 && errno != EEXIST)
                return -errno;
        _cleanup_close_ int fd = openat(state_fd, kept_path(w->id, FILE_NEW, path),
                                        O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC|O_NOFOLLOW, 0600);
        if (fd < 0)
                return -errno;
        r = write_full(fd, text, strlen(text));
        return r < 0 ? r : store_client_sync(w->manager->store, fd, on_synced, w);
}

static int write_new(Sandbox *s, const KeepRequest *q) {
        KeepWrite *w = new0(KeepWrite, 1);
        if (!w)
                return -ENOMEM;

        *w = (KeepWrite) { .manager = s->manager, .sandbox = s, .now = *q };
        memcpy(w->id, s->id, sizeof(w->id));
        int r = write_start(w);
        if (r < 0) {
                free(w);
                return r;
        }
        s->priv->keep_write = w;
        return 0;
}

int sandbox_keep(Sandbox *s, SandboxState state, Snapshot *on, KeepDone done, void *userdata) {
        KeepRequest q = { state, on, done, userdata }, replaced = {};
        KeepWrite *w = s->priv->keep_write;
        bool before = s->priv->kept;
        int r = 0;

        s->priv->kept = true;
        on->forgotten = false;
        snapshot_use(on);
        if (w) {
                if (w->again)
                        replaced = w->next;
                /* Who waits for the one that this replaces waits for this, which takes one who waits. */
                if (!q.done) {
                        q.done = TAKE_PTR(replaced.done);
                        q.userdata = replaced.userdata;
                }
                w->again = true;
                w->next = q;
        } else
                r = write_new(s, &q);
        if (r < 0)
                snapshot_release(on);
        if (r < 0 && !before)
                sandbox_forget_kept(s, NULL);
        if (replaced.done)
                replaced.done(-ECANCELED, replaced.userdata);
        if (replaced.on)
                snapshot_release(replaced.on);
        return r;
}

void sandbox_keep_again(Sandbox *s) {
        s->priv->keep_stale = s->state != SANDBOX_PAUSED && s->state != SANDBOX_FAILED;
        /* With its snapshot not found there is nothing better to write than what is there. */
        if (!s->priv->kept || s->priv->keep_stale || s->priv->layers_unknown)
                return;
        int r = sandbox_keep(s, s->state, s->disk_top, NULL, NULL);
        if (r < 0)
                log_warning_errno(r, "Sandbox %s: failed to write its " SANDBOX_KEPT_FILE ": %m", s->id);
}

void sandbox_drop_keep_write(Sandbox *s) {
        if (s->priv->keep_write)
                s->priv->keep_write->sandbox = NULL;
}

/* Forgetting. */

void sandbox_forget_kept(Sandbox *s, Snapshot *paused) {
        if (!s->priv->kept)
                return;
        s->priv->kept = false;
        if (!s->priv->net_lost)
                host_network_keep_slot(s->manager->network, s->slot, false);
        int r = unlink_kept(s->manager, s->id);
        if (paused && paused->kind == SNAPSHOT_PAUSE)
                forget_later(s->manager, paused, r);
}

/* Taking apart. */

static void close_fds(struct SandboxPrivate *p) {
        close_many((int[]) { p->listen_fd, p->kvm_fd, p->overlay_fd, p->console_fd }, 4);
        p->listen_fd = p->kvm_fd = p->overlay_fd = p->console_fd = -EBADF;
}

static void drop_sources(struct SandboxPrivate *p) {
        p->exit_source = sd_event_source_disable_unref(p->exit_source);
        p->deadline_timer = sd_event_source_disable_unref(p->deadline_timer);
        p->checkpoint_timer = sd_event_source_disable_unref(p->checkpoint_timer);
        p->idle_timer = sd_event_source_disable_unref(p->idle_timer);
        p->step_timer = sd_event_source_disable_unref(p->step_timer);
        p->stop_timer = sd_event_source_disable_unref(p->stop_timer);
        p->finish_source = sd_event_source_disable_unref(p->finish_source);
        p->save_timer = sd_event_source_disable_unref(p->save_timer);
}

static void drop_process(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        sandbox_drop_network(s);
        p->vmm = vmm_client_free(p->vmm);
        p->scope = scope_free(p->scope);
        vmm_process_done(&p->process);
        p->process = VMM_PROCESS_INIT;
        if (s->vmm_uid > 0)
                uid_range_release(s->manager->priv->uids, s->vmm_uid);
        s->vmm_uid = 0;
        s->vmm_pid = 0;
}

void sandbox_unmake(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        drop_sources(p);
        sandbox_drop_park(s);
        drop_process(s);
        close_fds(p);
        sandbox_remove_files(p->dir);
        sandbox_unlink_overlay(s);
        sd_bus_error_free(&p->error);
        p->agent_ready = p->agent_lost = p->end_expected = p->vmm_lost = p->exited = p->adopted = false;
        p->idle_asking = p->idle_was_busy = p->auto_resuming = false;
        p->was_running = true;
        p->n_device_errors = 0;
        p->step = STEP_SLOT;
        p->finish_waits = false;
        p->kill_reason = s->exit_reason = VMM_EXIT_NONE;
        s->exit_status = 0;
        p->capture_id[0] = 0;
        p->deadline_boot_usec = s->deadline_usec = UINT64_MAX;
}

/* When cubed starts. */

bool sandbox_is_kept(const Manager *m, const char *id) {
        KeptPath path;

        return faccessat(m->priv->state_fd, kept_path(id, SANDBOX_KEPT_FILE, path), F_OK, AT_SYMLINK_NOFOLLOW) >= 0;
}

int sandbox_find_kept(Manager *m, const char *id, Sandbox **ret) {
        _cleanup_close_ int fd = -EBADF;
        KeptPath path;
        Sandbox *s;

        fd = openat(m->priv->state_fd, kept_path(id, NULL, path), O_RDONLY|O_DIRECTORY|O_CLOEXEC|O_NOFOLLOW);
        if (fd < 0)
                return -errno;
        int r = sandbox_load_kept(m, id, fd, &s);
        if (r < 0)
                return r;
        s->priv->kept = s->priv->was_running = true;
        sandbox_use_template(s);
        if (s->priv->layers_unknown) {
                log_error("Sandbox %s is paused, but the snapshot it is paused in is gone; it can only be removed: cubectl kill %s", id, id);
                s->state = SANDBOX_FAILED;
        }
        *ret = s;
        return 0;
}

static void load_one(Manager *m, const char *id) {
        Sandbox *s;

        if (!sandbox_is_kept(m, id)) {
                (void) unlink_kept(m, id);
                return;
        }
        int r = sandbox_find_kept(m, id, &s);
        if (r < 0) {
                log_error_errno(r, "Paused sandbox %s can't be read, it is left where it is: %m", id);
                return;
        }
        sandbox_unlink_overlay(s);
        r = manager_add_sandbox(m, s);
        if (r < 0) {
                log_error_errno(r, "Paused sandbox %s can't be loaded: %m", id);
                sandbox_free(s);
        }
}

void manager_load_kept(Manager *m) {
        int fd = open_parent(m);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        struct dirent *e;

        if (!d) {
                safe_close(fd);
                return;
        }
        while ((e = readdir(d)))
                if (sandbox_id_valid(e->d_name) && !manager_find_sandbox(m, e->d_name))
                        load_one(m, e->d_name);
        /* Also what an earlier cubed had forgotten: snapshots go next. The loop does not run yet. */
        if (fsync(dirfd(d)) < 0)
                log_warning_errno(errno, "Paused sandboxes that are no more may be there again after a crash of the host: %m");
        closedir(d);
}
