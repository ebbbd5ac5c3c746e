/* SPDX-License-Identifier: Apache-2.0 */

/* How a sandbox ends: its VMM is killed or goes by itself, the reason is put together from what the
 * VMM left, how the process ended and what PID 1 knows, then everything is told and taken back.
 *
 * on_finish() alone frees it, from the loop, so that no caller loses it under his feet. */

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/console-ring.h"
#include "base/fd-util.h"
#include "daemon/audit.h"
#include "daemon/capture.h"
#include "daemon/log.h"
#include "daemon/sandbox-overlay.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

#define TAIL_BYTES 4096U
#define TAIL_LINES 12U
#define TAIL_LINE_MAX 160U

static int on_finish(sd_event_source *source, void *userdata);

void sandbox_schedule_finish(Sandbox *s) {
        if (s->priv->finish_source)
                return;
        int r = sd_event_add_defer(s->manager->event, &s->priv->finish_source, on_finish, s);
        if (r < 0)
                log_error_errno(r, "Sandbox %s ended, but can't be removed: %m", s->id);
}

static void set_exit(Sandbox *s, VmmExitReason reason, uint32_t status) {
        s->exit_reason = reason;
        s->exit_status = status;
}

void sandbox_end(Sandbox *s, VmmExitReason reason) {
        struct SandboxPrivate *p = s->priv;

        if (p->kill_reason == VMM_EXIT_NONE)
                p->kill_reason = reason;
        if (p->kept_as == SANDBOX_CREATING)
                sandbox_set_state(s, SANDBOX_STOPPING);
        p->step_timer = sd_event_source_disable_unref(p->step_timer);
        sandbox_drop_park(s);
        (void) sandbox_network_close(s, NULL);

        if (p->process.pid_fd < 0 || p->exited) {
                /* A paused one has no process that could say why. */
                if (p->was_running && s->exit_reason == VMM_EXIT_NONE)
                        set_exit(s, p->kill_reason, 0);
                sandbox_schedule_finish(s);
                return;
        }
        /* Its exit is what we wait for, also when it is gone already (ESRCH). */
        if (syscall(SYS_pidfd_send_signal, p->process.pid_fd, SIGKILL, NULL, 0) < 0 && errno != ESRCH) {
                log_warning_errno(errno, "Sandbox %s: failed to kill its VMM, asking PID 1: %m", s->id);
                if (p->scope)
                        (void) scope_kill(p->scope);
        }
}

void sandbox_fail(Sandbox *s, const sd_bus_error *error) {
        if (!sd_bus_error_is_set(&s->priv->error))
                (void) sd_bus_error_copy(&s->priv->error, error);
        sandbox_end(s, VMM_EXIT_KILLED);
}

void sandbox_failf(Sandbox *s, const char *name, const char *format, ...) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *text = NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&text, format, ap) < 0)
                text = NULL;
        va_end(ap);
        (void) sd_bus_error_set(&e, name, strempty(text));
        sandbox_fail(s, &e);
}

bool sandbox_read_exit_record(const char *dir, VmmExitRecord *ret) {
        _cleanup_free_ char *path = NULL;
        VmmExitRecord record;

        if (asprintf(&path, "%s/exit", dir) < 0)
                return false;
        _cleanup_close_ int fd = open(path, O_RDONLY|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);
        if (fd < 0 || read(fd, &record, sizeof(record)) != sizeof(record))
                return false;
        if (record.magic != VMM_EXIT_RECORD_MAGIC || record.version != 1 || record.reason == VMM_EXIT_NONE ||
            record.reason >= _VMM_EXIT_WRITTEN_MAX)
                return false;
        record.message[sizeof(record.message) - 1] = 0;
        *ret = record;
        return true;
}

/* The ring's end into buf; the VMM may be writing to it, or have put anything in there. */
static size_t read_ring_end(int fd, uint8_t buf[static TAIL_BYTES]) {
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t) sizeof(ConsoleRing))
                return 0;
        ConsoleRing *ring = mmap(NULL, sizeof(ConsoleRing), PROT_READ, MAP_SHARED, fd, 0);
        if (ring == MAP_FAILED)
                return 0;
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        size_t size = (size_t) MIN(head, (uint64_t) TAIL_BYTES);
        for (size_t i = 0; i < size; i++)
                buf[i] = ring->data[(head - size + i) % CONSOLE_RING_BYTES];
        (void) munmap(ring, sizeof(ConsoleRing));
        return size;
}

char *sandbox_console_tail(const Sandbox *s) {
        uint8_t buf[TAIL_BYTES];
        char *text = NULL;
        size_t text_size = 0, size = read_ring_end(s->priv->console_fd, buf), start = size;

        /* Back over the last line feeds. */
        while (size > 0 && (buf[size - 1] == '\n' || buf[size - 1] == '\r'))
                start = --size;
        for (unsigned lines = 0; start > 0; start--)
                if (buf[start - 1] == '\n' && ++lines == TAIL_LINES)
                        break;

        FILE *f = open_memstream(&text, &text_size);
        if (!f)
                return NULL;
        while (start < size) {
                const uint8_t *line = buf + start, *end = memchr(line, '\n', size - start);
                size_t n = end ? (size_t) (end - line) : size - start;

                start += n + 1;
                while (n > 0 && line[n - 1] == '\r')
                        n--;
                _cleanup_free_ char *e = escape_text(line, n, TAIL_LINE_MAX);
                fprintf(f, "  %s%s", strempty(e), start < size ? "\n" : "");
        }
        if (fclose(f) != 0) {
                free(text);
                return NULL;
        }
        return text;
}

static void on_scope_result(Scope *scope, const char *result, void *userdata) {
        Sandbox *s = userdata;

        if (streq(result, "oom-kill"))
                set_exit(s, VMM_EXIT_OOM, SIGKILL);
        else if (streq(result, "timeout"))
                set_exit(s, VMM_EXIT_STOP_TIMEOUT, SIGKILL);
        sandbox_schedule_finish(s);
}

/* What the end of the process alone tells. True when PID 1 may know better. */
static bool exit_from_process(Sandbox *s, const siginfo_t *si) {
        const char *step;
        int error;

        if (vmm_process_failure(&s->priv->process, &step, &error)) {
                set_exit(s, VMM_EXIT_VMM_ERROR, (uint32_t) error);
                if (!sd_bus_error_is_set(&s->priv->error))
                        (void) sd_bus_error_setf(&s->priv->error, BUS_ERROR_INTERNAL,
                                                 "The VMM of sandbox %s could not be started: %s: %s", s->id, step, strerror(error));
                return false;
        }
        if (!si) {
                set_exit(s, VMM_EXIT_LOST, 0);
                return true;
        }
        if (si->si_code == CLD_EXITED) {
                set_exit(s, VMM_EXIT_VMM_ERROR, (uint32_t) si->si_status);
                return false;
        }
        set_exit(s, VMM_EXIT_SIGNAL, (uint32_t) si->si_status);
        return si->si_status == SIGKILL;
}

void sandbox_process_gone(Sandbox *s, const siginfo_t *si) {
        struct SandboxPrivate *p = s->priv;
        VmmExitRecord record;
        bool ask = false;

        p->exited = true;
        (void) sandbox_network_close(s, NULL);
        p->exit_source = sd_event_source_disable_unref(p->exit_source);
        p->stop_timer = sd_event_source_disable_unref(p->stop_timer);
        p->step_timer = sd_event_source_disable_unref(p->step_timer);

        if (sandbox_read_exit_record(p->dir, &record)) {
                _cleanup_free_ char *text = escape_text(record.message, strlen(record.message), sizeof(record.message));
                set_exit(s, (VmmExitReason) record.reason, record.status);
                log_info("Sandbox %s ended: %s, status %u: %s", s->id, vmm_exit_reason_to_string(s->exit_reason),
                         s->exit_status, strempty(text));
        } else if (p->kill_reason != VMM_EXIT_NONE)
                set_exit(s, p->kill_reason, 0);
        else
                ask = exit_from_process(s, si);

        if (p->kept_as == SANDBOX_CREATING)
                sandbox_set_state(s, SANDBOX_STOPPING);
        if (!ask || !p->scope || scope_get_result(p->scope, on_scope_result, s) < 0)
                sandbox_schedule_finish(s);
}

static void explain_failed_boot(Sandbox *s) {
        _cleanup_free_ char *tail = sandbox_console_tail(s);
        static const char *const what[_VMM_EXIT_REASON_MAX] = {
                [VMM_EXIT_POWEROFF] = "powered off",
                [VMM_EXIT_RESET] = "reset itself",
                [VMM_EXIT_RESET_EARLY] = "reset itself early (a kernel panic, most often)",
                [VMM_EXIT_PANIC] = "panicked",
                [VMM_EXIT_TRIPLE_FAULT] = "crashed with a triple fault",
                [VMM_EXIT_OOM] = "was killed: it reached the memory limit of its scope",
        };
        const char *text = what[s->exit_reason];

        if (text)
                (void) sd_bus_error_setf(&s->priv->error, BUS_ERROR_GUEST_FAILED,
                                         "The guest of sandbox %s %s while it %s (%s). Its console's last lines:\n%s", s->id,
                                         text, s->restored ? "was restored" : "booted", vmm_exit_reason_to_string(s->exit_reason), isempty(tail) ? "  (nothing was printed)" : tail);
        else
                (void) sd_bus_error_setf(&s->priv->error, BUS_ERROR_GUEST_FAILED,
                                         "The VMM of sandbox %s ended while its guest %s: %s, status %u; see journalctl -u %s",
                                         s->id, s->restored ? "was restored" : "booted", vmm_exit_reason_to_string(s->exit_reason), s->exit_status, s->scope_name);
}

static void drop_turns(Sandbox *s) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        (void) sandbox_set_error(s, &e, -ECONNRESET, "");
        sandbox_drop_turns(s, &e);
        sandbox_drop_statistics(s, &e);
}

static void tell_waiters(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;
        SandboxDone create_done = p->create_done;

        p->create_done = NULL;
        if (create_done)
                create_done(s, &p->error, p->create_userdata);
        sandbox_tell_waiters(s, &p->waiters, NULL);
}

static void tell_all_changed(Sandbox *s) {
        static const char *const names[] = { "VMMPID", "Deadline", "Start", "BaseSnapshot" };

        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                sandbox_changed(s, names[i]);
}

/* It stays, on disk: it was paused, or its resume came to nothing. */
static void come_to_rest(Sandbox *s) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        struct SandboxPrivate *p = s->priv;
        SandboxState state = p->kept_as;
        bool was_pausing = s->state == SANDBOX_PAUSING;
        SandboxDone done = p->create_done;

        if (!was_pausing && !sd_bus_error_is_set(&p->error))
                explain_failed_boot(s);
        (void) sd_bus_error_copy(&e, &p->error);
        p->kept_as = SANDBOX_CREATING;
        p->create_done = NULL;
        sandbox_unmake(s);
        sandbox_stand_as_kept(s);
        sandbox_set_state(s, state);
        tell_all_changed(s);
        if (was_pausing)
                sandbox_paused(s);
        else
                audit_resume_failed(s->manager->audit, s, strempty(e.message));
        if (state == SANDBOX_FAILED || p->keep_stale)
                sandbox_keep_again(s);
        if (!sd_bus_error_is_set(&e))
                (void) sandbox_check_running(s, &e);
        sandbox_drop_turns(s, &e);
        sandbox_drop_statistics(s, &e);
        if (done)
                done(s, &e, p->create_userdata);
}

static int on_finish(sd_event_source *source, void *userdata) {
        Sandbox *s = userdata;
        struct SandboxPrivate *p = s->priv;
        Manager *m = s->manager;

        p->finish_source = sd_event_source_disable_unref(p->finish_source);
        p->finish_waits = p->net_closing;
        if (p->finish_waits)
                return 0;
        if (p->kept_as != SANDBOX_CREATING) {
                come_to_rest(s);
                return 0;
        }

        if (!p->was_running && !sd_bus_error_is_set(&p->error))
                explain_failed_boot(s);
        manager_remove_sandbox(m, s);

        /* Requests under way get their answer here, with the reason known. */
        vmm_client_free(TAKE_PTR(p->vmm));
        drop_turns(s);

        if (!p->was_running)
                audit_failed(m->audit, s, strempty(p->error.message));
        if (s->exit_reason != VMM_EXIT_NONE)
                audit_exited(m->audit, s);
        sandbox_remove_files(p->dir);
        sandbox_forget_kept(s, s->disk_top);
        p->overlay_fd = safe_close(p->overlay_fd);
        sandbox_remove_overlay(s);
        sandbox_set_tops(s, NULL, NULL);
        sandbox_remove_checkpoints(s);
        if (!s->builder && m->hooks && m->hooks->sandbox_removed)
                m->hooks->sandbox_removed(m, s);
        tell_waiters(s);

        sandbox_free(s);
        manager_update_status(m);
        return 0;
}
