/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/scope.h"

#define PID1_NAME "org.freedesktop.systemd1"
#define PID1_PATH "/org/freedesktop/systemd1"
#define PID1_MANAGER "org.freedesktop.systemd1.Manager"

/* Two levels of page tables (host, nested) are charged, 1/512 each; the rest was measured. */
#define SCOPE_OVERHEAD_BYTES MIB(32)
#define SCOPE_VSOCK_BYTES MIB(16)

/* PID 1 learns of an OOM kill by the cgroup's events, some time after we see the process gone. */
#define RESULT_POLL_USEC (50 * USEC_PER_MSEC)
#define RESULT_POLLS_MAX 40U
/* And one of the same name, whose processes are gone, it forgets in its own time. */
#define START_AGAIN_USEC (50 * USEC_PER_MSEC)
#define START_AGAIN_FOR_USEC (5 * USEC_PER_SEC)

struct Units {
        sd_bus *bus;
        sd_bus_slot *job_removed;
        Scope *scopes;
};

struct Scope {
        Units *units;
        char *name;
        char *unit_path;
        bool referenced;           /* by us, at PID 1 */

        sd_bus_message *start;     /* kept for another try */
        uint64_t start_until_usec; /* CLOCK_MONOTONIC, from the first failure on */
        unsigned n_starts;
        sd_event_source *start_timer;
        char *job;                 /* path of the start job */
        sd_bus_slot *slot;         /* the call to PID 1 under way */
        ScopeDone done;
        void *userdata;

        sd_bus_slot *limits_slot;
        ScopeDone limits_done;
        void *limits_userdata;

        sd_bus_slot *result_slot;
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
        s->start = sd_bus_message_unref(s->start);
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

Units *units_free(Units *u) {
        if (!u)
                return NULL;

        assert(!u->scopes);
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
                (void) sd_bus_call_method_async(s->units->bus, NULL, PID1_NAME, PID1_PATH, PID1_MANAGER, "UnrefUnit",
                                                NULL, NULL, "s", s->name);
        sd_bus_slot_unref(s->slot);
        sd_bus_slot_unref(s->limits_slot);
        sd_bus_slot_unref(s->result_slot);
        sd_event_source_disable_unref(s->result_timer);
        sd_event_source_disable_unref(s->start_timer);
        sd_bus_message_unref(s->start);
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

static int build_start(Scope *s, const ScopeSpec *spec) {
        int r = sd_bus_message_new_method_call(s->units->bus, &s->start, PID1_NAME, PID1_PATH, PID1_MANAGER,
                                               "StartTransientUnit");
        if (r >= 0)
                r = sd_bus_message_append(s->start, "ss", spec->name, "fail");
        if (r >= 0)
                r = append_properties(s->start, spec);
        return r;
}

static int on_start_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error);

/* A sealed message can't be sent twice: the retry is a copy. */
static int send_start(Scope *s) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int r = sd_bus_message_new_method_call(s->units->bus, &m, PID1_NAME, PID1_PATH, PID1_MANAGER,
                                               "StartTransientUnit");
        if (r >= 0)
                r = sd_bus_message_rewind(s->start, true);
        if (r >= 0)
                r = sd_bus_message_copy(m, s->start, true);
        if (r >= 0)
                r = sd_bus_call_async(s->units->bus, &s->slot, m, on_start_reply, s, 0);
        return r;
}

static void start_failed(Scope *s, int r) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        (void) sd_bus_error_set_errno(&e, r);
        scope_started(s, &e);
}

static int on_start_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Scope *s = userdata;

        s->start_timer = sd_event_source_disable_unref(s->start_timer);
        int r = send_start(s);
        if (r < 0)
                start_failed(s, r);
        return 0;
}

static int on_reset_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Scope *s = userdata;

        /* Whether or not that helped, the next try tells. */
        s->slot = sd_bus_slot_unref(s->slot);
        int r = sd_event_add_time_relative(sd_bus_get_event(s->units->bus), &s->start_timer, CLOCK_MONOTONIC,
                                           s->n_starts > 1 ? START_AGAIN_USEC : 0, 0, on_start_timer, s);
        if (r < 0)
                start_failed(s, r);
        return 0;
}

static bool may_try_again(Scope *s) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        uint64_t now = (uint64_t) ts.tv_sec * USEC_PER_SEC + (uint64_t) ts.tv_nsec / NSEC_PER_USEC;
        if (s->n_starts++ == 0)
                s->start_until_usec = now + START_AGAIN_FOR_USEC;
        return now < s->start_until_usec;
}

static int on_start_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Scope *s = userdata;
        const sd_bus_error *e = sd_bus_message_get_error(m);
        const char *job;

        s->slot = sd_bus_slot_unref(s->slot);
        if (e && sd_bus_error_has_name(e, "org.freedesktop.systemd1.UnitExists") && may_try_again(s)) {
                if (sd_bus_call_method_async(s->units->bus, &s->slot, PID1_NAME, PID1_PATH, PID1_MANAGER,
                                             "ResetFailedUnit", on_reset_reply, s, "s", s->name) >= 0)
                        return 0;
        }
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
        _cleanup_(scope_freep) Scope *s = NULL;

        int r = scope_new(u, spec->name, &s);
        if (r < 0)
                return r;
        s->done = done;
        s->userdata = userdata;
        r = build_start(s, spec);
        if (r >= 0)
                r = sd_bus_message_seal(s->start, 1, 0);
        if (r >= 0)
                r = send_start(s);
        if (r < 0)
                return r;
        s->referenced = true;
        *ret = TAKE_PTR(s);
        return 0;
}

static int on_ref_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Scope *s = userdata;
        const sd_bus_error *e = sd_bus_message_get_error(m);

        s->slot = sd_bus_slot_unref(s->slot);
        if (e) {
                s->referenced = false;
                log_warning("PID 1 does not know %s: %s", s->name, strempty(e->message));
        }
        return 0;
}

int scope_adopt(Units *u, const char *name, Scope **ret) {
        _cleanup_(scope_freep) Scope *s = NULL;

        int r = scope_new(u, name, &s);
        if (r >= 0)
                r = sd_bus_call_method_async(u->bus, &s->slot, PID1_NAME, PID1_PATH, PID1_MANAGER, "RefUnit",
                                             on_ref_reply, s, "s", name);
        if (r < 0)
                return r;
        s->referenced = true;
        *ret = TAKE_PTR(s);
        return 0;
}

static int on_limits_reply(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        Scope *s = userdata;
        ScopeDone done = s->limits_done;

        s->limits_slot = sd_bus_slot_unref(s->limits_slot);
        s->limits_done = NULL;
        if (done)
                done(s, sd_bus_message_get_error(m), s->limits_userdata);
        return 0;
}

int scope_set_limits(Scope *s, uint64_t mem_max, uint64_t mem_swap_max, uint64_t cpu_quota_usec, ScopeDone done,
                     void *userdata) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        if (s->limits_slot)
                return -EBUSY;
        int r = sd_bus_message_new_method_call(s->units->bus, &m, PID1_NAME, PID1_PATH, PID1_MANAGER,
                                               "SetUnitProperties");
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
                r = sd_bus_call_async(s->units->bus, &s->limits_slot, m, on_limits_reply, s, 0);
        if (r < 0)
                return r;
        s->limits_done = done;
        s->limits_userdata = userdata;
        return 0;
}

int units_kill(Units *u, const char *name) {
        return sd_bus_call_method_async(u->bus, NULL, PID1_NAME, PID1_PATH, PID1_MANAGER, "KillUnit", NULL, NULL, "ssi",
                                        name, "all", SIGKILL);
}

int scope_kill(Scope *s) {
        return units_kill(s->units, s->name);
}

static void result_finish(Scope *s, const char *result) {
        ScopeResult done = s->result_done;

        s->result_slot = sd_bus_slot_unref(s->result_slot);
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
        s->result_slot = sd_bus_slot_unref(s->result_slot);
        return sd_bus_call_method_async(s->units->bus, &s->result_slot, PID1_NAME, s->unit_path,
                                        "org.freedesktop.DBus.Properties", "Get", reply, s, "ss", interface, property);
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
