/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "daemon/log.h"
#include "daemon/pid1-call.h"
#include "daemon/scope.h"

/* Two levels of page tables (host, nested) are charged, 1/512 each; the rest was measured. */
#define SCOPE_OVERHEAD_BYTES MIB(32)
#define SCOPE_VSOCK_BYTES MIB(16)

/* PID 1 learns of an OOM kill by the cgroup's events, some time after we see the process gone. */
#define RESULT_POLL_USEC (50 * USEC_PER_MSEC)
#define RESULT_POLLS_MAX 200U
/* And one of the same name, whose processes are gone, it forgets in its own time. */
#define START_AGAIN_USEC (50 * USEC_PER_MSEC)
#define START_AGAIN_FOR_USEC (20 * USEC_PER_SEC)
/* The end of a job is not told where PID 1 executes itself anew behind it. */
#define START_LOOK_USEC (250 * USEC_PER_MSEC)
#define CGROUP_FILE_MAX 8192U

/* A call whose answer nobody waits for. */
typedef struct Told {
        Units *units;
        Pid1Call *call;
        struct Told *next;
} Told;

struct Units {
        sd_bus *bus;
        sd_bus_slot *job_removed;
        Scope *scopes;
        Told *told;
};

struct Scope {
        Units *units;
        char *name;
        char *unit_path;
        bool referenced;           /* by us, at PID 1 */

        pid_t pid;                 /* whom it is started for */
        Pid1Call *start;           /* kept for another try */
        Pid1Call *reset;
        uint64_t start_until_usec; /* CLOCK_MONOTONIC, from the first failure on */
        unsigned n_starts;
        sd_event_source *start_timer;
        sd_event_source *look_timer;
        char *job;                 /* path of the start job */
        ScopeDone done;
        void *userdata;

        Pid1Call *ref;

        Pid1Call *limits;
        ScopeDone limits_done;
        void *limits_userdata;

        Pid1Call *get;
        sd_event_source *result_timer;
        unsigned n_polls;
        ScopeResult result_done;
        void *result_userdata;

        Scope *next;
};

uint64_t scope_memory_max(uint64_t mem_bytes) {
        return mem_bytes + mem_bytes / 256 + SCOPE_OVERHEAD_BYTES + SCOPE_VSOCK_BYTES;
}

static void scope_started(Scope *s, const sd_bus_error *error) {
        ScopeDone done = s->done;

        s->done = NULL;
        s->start_timer = sd_event_source_disable_unref(s->start_timer);
        s->look_timer = sd_event_source_disable_unref(s->look_timer);
        s->start = pid1_call_free(s->start);
        s->reset = pid1_call_free(s->reset);
        free(s->job);
        s->job = NULL;
        if (done)
                done(s, error, s->userdata);
}

static int match_job_removed(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Units *u = userdata;
        const char *path, *unit, *result;
        uint32_t id;

        int r = sd_bus_message_read(m, "uoss", &id, &path, &unit, &result);
        if (r < 0) {
                log_warning_errno(r, "PID 1 sent a JobRemoved that can't be read: %m");
                return 0;
        }

        for (Scope *s = u->scopes; s; s = s->next) {
                if (!s->job || !streq(s->job, path))
                        continue;
                _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
                if (!streq(result, "done"))
                        (void) sd_bus_error_setf(&e, SD_BUS_ERROR_FAILED,
                                                 "PID 1 could not start %s: the job ended with result \"%s\"; see "
                                                 "journalctl -u %s", s->name, result, s->name);
                scope_started(s, sd_bus_error_is_set(&e) ? &e : NULL);
                break;
        }
        return 0;
}

static int on_subscribed(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);

        if (e)
                log_warning("PID 1 refused to send its signals: %s", strempty(e->message));
        return 0;
}

static int on_matched(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);

        if (e)
                log_error("The bus refused the match for PID 1's signals: %s", strempty(e->message));
        return 0;
}

int units_new(sd_bus *bus, Units **ret) {
        _cleanup_(units_freep) Units *u = new0(Units, 1);
        if (!u)
                return -ENOMEM;

        u->bus = sd_bus_ref(bus);
        int r = sd_bus_match_signal_async(bus, &u->job_removed, PID1_NAME, PID1_PATH, PID1_MANAGER, "JobRemoved",
                                          match_job_removed, on_matched, u);
        if (r < 0)
                return r;
        /* PID 1 sends job signals only while somebody is subscribed. */
        r = sd_bus_call_method_async(bus, NULL, PID1_NAME, PID1_PATH, PID1_MANAGER, "Subscribe", on_subscribed, NULL,
                                     NULL);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(u);
        return 0;
}

static void told_free(Told *t) {
        Told **i = &t->units->told;

        while (*i != t)
                i = &(*i)->next;
        *i = t->next;
        pid1_call_free(t->call);
        free(t);
}

static int on_told(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        told_free(userdata);
        return 0;
}

static int new_call(Units *u, const char *member, sd_bus_message **ret) {
        return sd_bus_message_new_method_call(u->bus, ret, PID1_NAME, PID1_PATH, PID1_MANAGER, member);
}

/* Takes m. */
static int tell(Units *u, sd_bus_message *m) {
        Told *t = new0(Told, 1);
        if (!t)
                return -ENOMEM;

        *t = (Told) { .units = u, .next = u->told };
        u->told = t;
        int r = pid1_call(m, on_told, t, &t->call);
        if (r < 0)
                told_free(t);
        return r;
}

Units *units_free(Units *u) {
        if (!u)
                return NULL;

        assert(!u->scopes);
        while (u->told)
                told_free(u->told);
        sd_bus_slot_unref(u->job_removed);
        sd_bus_unref(u->bus);
        free(u);
        return NULL;
}

static int scope_new(Units *u, const char *name, Scope **ret) {
        Scope *s = new0(Scope, 1);
        if (!s)
                return -ENOMEM;

        s->units = u;
        s->next = u->scopes;
        u->scopes = s;
        s->name = strdup(name);
        if (!s->name || sd_bus_path_encode(PID1_PATH "/unit", name, &s->unit_path) < 0) {
                scope_free(s);
                return -ENOMEM;
        }
        *ret = s;
        return 0;
}

static int tell_name(Units *u, const char *member, const char *name) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int r = new_call(u, member, &m);
        if (r >= 0)
                r = sd_bus_message_append(m, "s", name);
        return r < 0 ? r : tell(u, m);
}

Scope *scope_free(Scope *s) {
        if (!s)
                return NULL;

        for (Scope **i = &s->units->scopes; *i; i = &(*i)->next)
                if (*i == s) {
                        *i = s->next;
                        break;
                }

        /* Behind a StartTransientUnit still under way it comes second: PID 1 works in order. */
        if (s->referenced)
                (void) tell_name(s->units, "UnrefUnit", s->name);
        pid1_call_free(s->ref);
        pid1_call_free(s->limits);
        pid1_call_free(s->get);
        sd_event_source_disable_unref(s->result_timer);
        sd_event_source_disable_unref(s->start_timer);
        sd_event_source_disable_unref(s->look_timer);
        pid1_call_free(s->start);
        pid1_call_free(s->reset);
        free(s->job);
        free(s->unit_path);
        free(s->name);
        free(s);
        return NULL;
}

const char *scope_name(const Scope *s) {
        return s->name;
}

static int append_limit(sd_bus_message *m, const char *name, uint64_t value) {
        return sd_bus_message_append(m, "(sv)", name, "t", value);
}

static int append_properties(sd_bus_message *m, const ScopeSpec *spec) {
        int r = sd_bus_message_open_container(m, 'a', "(sv)");
        if (r >= 0)
                r = sd_bus_message_append(m, "(sv)(sv)(sv)(sv)(sv)(sv)(sv)(sv)(sv)",
                                          "Description", "s", spec->description,
                                          "Slice", "s", spec->slice,
                                          "PIDs", "au", 1, (uint32_t) spec->pid,
                                          "CollectMode", "s", "inactive-or-failed",
                                          "AddRef", "b", 1,
                                          "KillMode", "s", "control-group",
                                          "OOMPolicy", "s", "kill",
                                          "DevicePolicy", "s", "closed",
                                          /* Stopped before cubed when the host goes down. */
                                          "After", "as", 1, "cubed.service");
        if (r >= 0)
                r = append_limit(m, "TimeoutStopUSec", spec->stop_timeout_usec);
        if (r >= 0)
                r = append_limit(m, "MemoryMax", spec->mem_max);
        if (r >= 0)
                r = append_limit(m, "MemorySwapMax", spec->mem_swap_max);
        if (r >= 0)
                r = append_limit(m, "CPUQuotaPerSecUSec", spec->cpu_quota_usec);
        if (r >= 0)
                r = append_limit(m, "TasksMax", spec->tasks_max);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        /* No auxiliary units. */
        return r < 0 ? r : sd_bus_message_append(m, "a(sa(sv))", 0);
}

static void start_failed(Scope *s, int r) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        (void) sd_bus_error_set_errno(&e, r);
        scope_started(s, &e);
}

static int on_start_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Scope *s = userdata;

        s->start_timer = sd_event_source_disable_unref(s->start_timer);
        int r = pid1_call_again(s->start);
        if (r < 0)
                start_failed(s, r);
        return 0;
}

/* Is the process in its scope? Then the limits hold, whatever PID 1 told us. */
static bool is_there(const Scope *s) {
        _cleanup_free_ char *text = NULL;
        char path[40], end[256];

        (void) snprintf(path, sizeof(path), "/proc/%d/cgroup", (int) s->pid);
        (void) snprintf(end, sizeof(end), "/%s\n", s->name);
        return read_file(AT_FDCWD, path, CGROUP_FILE_MAX, &text, NULL) >= 0 && strstr(text, end);
}

static int on_look_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Scope *s = userdata;

        if (is_there(s)) {
                log_info("PID 1 did not tell that %s was started, but it was", s->name);
                scope_started(s, NULL);
                return 0;
        }
        int r = sd_event_source_set_time_relative(source, START_LOOK_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int on_reset_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Scope *s = userdata;

        /* Whether or not that helped, the next try tells. */
        s->reset = pid1_call_free(s->reset);
        int r = sd_event_add_time_relative(sd_bus_get_event(s->units->bus), &s->start_timer, CLOCK_MONOTONIC,
                                           s->n_starts > 1 ? START_AGAIN_USEC : 0, 0, on_start_timer, s);
        if (r < 0)
                start_failed(s, r);
        return 0;
}

static bool may_try_again(Scope *s) {
        uint64_t now = now_usec();

        if (s->n_starts++ == 0)
                s->start_until_usec = now + START_AGAIN_FOR_USEC;
        return now < s->start_until_usec;
}

static int reset(Scope *s) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int r = new_call(s->units, "ResetFailedUnit", &m);
        if (r >= 0)
                r = sd_bus_message_append(m, "s", s->name);
        return r < 0 ? r : pid1_call(m, on_reset_reply, s, &s->reset);
}

static int on_start_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Scope *s = userdata;
        const sd_bus_error *e = sd_bus_message_get_error(m);
        const char *job;

        if (e && sd_bus_error_has_name(e, "org.freedesktop.systemd1.UnitExists") && may_try_again(s) && reset(s) >= 0)
                return 0;
        if (e) {
                /* Nothing was made that we could have a reference on. */
                s->referenced = false;
                scope_started(s, e);
                return 0;
        }

        int r = sd_bus_message_read(m, "o", &job);
        if (r >= 0) {
                s->job = strdup(job);
                if (!s->job)
                        r = -ENOMEM;
        }
        if (r < 0) {
                _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
                (void) sd_bus_error_set_errno(&error, r);
                scope_started(s, &error);
        }
        return 0;
}

int scope_start(Units *u, const ScopeSpec *spec, ScopeDone done, void *userdata, Scope **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        _cleanup_(scope_freep) Scope *s = NULL;

        int r = scope_new(u, spec->name, &s);
        if (r < 0)
                return r;
        s->pid = spec->pid;
        s->done = done;
        s->userdata = userdata;
        r = new_call(u, "StartTransientUnit", &m);
        if (r >= 0)
                r = sd_bus_message_append(m, "ss", spec->name, "fail");
        if (r >= 0)
                r = append_properties(m, spec);
        if (r >= 0)
                r = sd_event_add_time_relative(sd_bus_get_event(u->bus), &s->look_timer, CLOCK_MONOTONIC, START_LOOK_USEC, 0,
                                               on_look_timer, s);
        if (r >= 0)
                r = pid1_call(m, on_start_reply, s, &s->start);
        if (r < 0)
                return r;
        s->referenced = true;
        *ret = TAKE_PTR(s);
        return 0;
}

static int on_ref_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Scope *s = userdata;
        const sd_bus_error *e = sd_bus_message_get_error(m);

        s->ref = pid1_call_free(s->ref);
        if (e) {
                s->referenced = false;
                log_warning("PID 1 does not know %s: %s", s->name, strempty(e->message));
        }
        return 0;
}

int scope_adopt(Units *u, const char *name, Scope **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        _cleanup_(scope_freep) Scope *s = NULL;

        int r = scope_new(u, name, &s);
        if (r >= 0)
                r = new_call(u, "RefUnit", &m);
        if (r >= 0)
                r = sd_bus_message_append(m, "s", name);
        if (r >= 0)
                r = pid1_call(m, on_ref_reply, s, &s->ref);
        if (r < 0)
                return r;
        s->referenced = true;
        *ret = TAKE_PTR(s);
        return 0;
}

static int on_limits_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Scope *s = userdata;
        ScopeDone done = s->limits_done;

        s->limits = pid1_call_free(s->limits);
        s->limits_done = NULL;
        if (done)
                done(s, sd_bus_message_get_error(m), s->limits_userdata);
        return 0;
}

int scope_set_limits(Scope *s, uint64_t mem_max, uint64_t mem_swap_max, uint64_t cpu_quota_usec, ScopeDone done,
                     void *userdata) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        if (s->limits)
                return -EBUSY;
        int r = new_call(s->units, "SetUnitProperties", &m);
        if (r >= 0)
                r = sd_bus_message_append(m, "sb", s->name, 1);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "(sv)");
        if (r >= 0 && mem_max > 0)
                r = append_limit(m, "MemoryMax", mem_max);
        if (r >= 0 && mem_swap_max > 0)
                r = append_limit(m, "MemorySwapMax", mem_swap_max);
        if (r >= 0 && cpu_quota_usec > 0)
                r = append_limit(m, "CPUQuotaPerSecUSec", cpu_quota_usec);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        if (r >= 0)
                r = pid1_call(m, on_limits_reply, s, &s->limits);
        if (r < 0)
                return r;
        s->limits_done = done;
        s->limits_userdata = userdata;
        return 0;
}

int units_kill(Units *u, const char *name) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int r = new_call(u, "KillUnit", &m);
        if (r >= 0)
                r = sd_bus_message_append(m, "ssi", name, "all", SIGKILL);
        return r < 0 ? r : tell(u, m);
}

int scope_kill(Scope *s) {
        return units_kill(s->units, s->name);
}

static void result_finish(Scope *s, const char *result) {
        ScopeResult done = s->result_done;

        s->get = pid1_call_free(s->get);
        s->result_done = NULL;
        if (done)
                done(s, result, s->result_userdata);
}

static int read_string_property(sd_bus_message *m, const char **ret) {
        if (sd_bus_message_is_method_error(m, NULL))
                return -EIO;
        return sd_bus_message_read(m, "v", "s", ret);
}

static int on_result_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        const char *result;

        result_finish(userdata, read_string_property(m, &result) < 0 ? "" : result);
        return 0;
}

static int get_property(Scope *s, const char *interface, const char *property, sd_bus_message_handler_t reply) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        s->get = pid1_call_free(s->get);
        int r = sd_bus_message_new_method_call(s->units->bus, &m, PID1_NAME, s->unit_path, "org.freedesktop.DBus.Properties", "Get");
        if (r >= 0)
                r = sd_bus_message_append(m, "ss", interface, property);
        return r < 0 ? r : pid1_call(m, reply, s, &s->get);
}

static int on_state_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);

static int on_result_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Scope *s = userdata;

        if (get_property(s, "org.freedesktop.systemd1.Unit", "ActiveState", on_state_reply) < 0)
                result_finish(s, "");
        return 0;
}

static int poll_again(Scope *s) {
        if (!s->result_timer)
                return sd_event_add_time_relative(sd_bus_get_event(s->units->bus), &s->result_timer, CLOCK_MONOTONIC,
                                                  RESULT_POLL_USEC, 0, on_result_timer, s);
        int r = sd_event_source_set_time_relative(s->result_timer, RESULT_POLL_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(s->result_timer, SD_EVENT_ONESHOT);
}

static int on_state_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Scope *s = userdata;
        const char *state;
        int r = read_string_property(m, &state);

        if (r >= 0 && !streq(state, "inactive") && !streq(state, "failed") && s->n_polls++ < RESULT_POLLS_MAX)
                r = poll_again(s);
        else if (r >= 0)
                r = get_property(s, "org.freedesktop.systemd1.Scope", "Result", on_result_reply);
        if (r < 0)
                result_finish(s, "");
        return 0;
}

int scope_get_result(Scope *s, ScopeResult done, void *userdata) {
        if (s->result_done)
                return -EBUSY;

        s->n_polls = 0;
        int r = get_property(s, "org.freedesktop.systemd1.Unit", "ActiveState", on_state_reply);
        if (r < 0)
                return r;
        s->result_done = done;
        s->result_userdata = userdata;
        return 0;
}
