/* SPDX-License-Identifier: Apache-2.0 */

/* The two time-outs of a sandbox, its lifetime and the idle one, and what happens at their end.
 *
 * CLOCK_BOOTTIME: a host that slept must not extend them, and nobody's setting of the clock may end them.
 *
 * Idle is a guest of which nothing was asked for that long, with no process that was started over the bus, no stream,
 * and a network that was of no use to anybody (flow_note_use() of net/bpf/flow.h). When the timer fires the filter says when
 * the network last was, the VMM what connections there are, and the guest what processes. The last two are asked some times
 * before that, too, while they keep it busy, since their end is told to nobody. What can't be found out counts as busy. */

#include "base/parse.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

/* How often a busy guest is looked at: this many times in its time-out, between these bounds. */
#define LOOKS 4U
#define LOOK_MIN_USEC USEC_PER_SEC
#define LOOK_MAX_USEC (60 * USEC_PER_SEC)
#define LIST_TIMEOUT_USEC (30 * USEC_PER_SEC)
/* After a pause that failed. */
#define AGAIN_USEC (60 * USEC_PER_SEC)
#define ACCURACY_USEC (100 * USEC_PER_MSEC)

static void save_anywhere(Sandbox *s) {
        if (!sandbox_on_disk(s))
                sandbox_save_soon(s);
        sandbox_keep_again(s);
}

static bool has_guest(const Sandbox *s) {
        return s->state == SANDBOX_RUNNING || s->state == SANDBOX_PAUSING;
}

/* At a time, UINT64_MAX = never. */
static int arm(Sandbox *s, sd_event_source **timer, uint64_t boot_usec, sd_event_time_handler_t fn) {
        if (boot_usec == UINT64_MAX) {
                *timer = sd_event_source_disable_unref(*timer);
                return 0;
        }
        if (!*timer)
                return sd_event_add_time(s->manager->event, timer, CLOCK_BOOTTIME, boot_usec, ACCURACY_USEC, fn, s);
        int r = sd_event_source_set_time(*timer, boot_usec);
        return r < 0 ? r : sd_event_source_set_enabled(*timer, SD_EVENT_ONESHOT);
}

static uint64_t from_now(uint64_t usec) {
        return usec_add(clock_usec(CLOCK_BOOTTIME), usec);
}

/* Their end. */

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata);
static int on_idle_timer(sd_event_source *source, uint64_t usec, void *userdata);

static void pause_failed(Sandbox *s, const sd_bus_error *error) {
        if (s->state != SANDBOX_RUNNING)
                return;
        log_warning("Sandbox %s: its time is over, but it could not be paused and runs on, trying again in a minute: %s", s->id,
                    strempty(error->message));
        if (s->priv->deadline_boot_usec <= clock_usec(CLOCK_BOOTTIME))
                (void) arm(s, &s->priv->deadline_timer, from_now(AGAIN_USEC), on_deadline);
        if (s->idle_timeout_usec != UINT64_MAX)
                (void) arm(s, &s->priv->idle_timer, from_now(AGAIN_USEC), on_idle_timer);
}

static void on_paused(Sandbox *s, const sd_bus_error *error, void *userdata) {
        if (error)
                pause_failed(s, error);
}

static void time_over(Sandbox *s, const char *which) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        if (!has_guest(s))
                return;
        log_info("Sandbox %s: its %s is over: %s", s->id, which, sandbox_end_to_string(s->on_timeout));
        if (s->on_timeout == SANDBOX_END_KILL)
                sandbox_end(s, VMM_EXIT_TIMEOUT);
        else if (sandbox_pause(s, s->on_timeout == SANDBOX_END_PAUSE, on_paused, NULL, &e) < 0)
                pause_failed(s, &e);
}

/* Lifetime. */

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata) {
        time_over(userdata, "lifetime");
        return 0;
}

int sandbox_arm_deadline(Sandbox *s) {
        return arm(s, &s->priv->deadline_timer, s->priv->deadline_boot_usec, on_deadline);
}

int sandbox_set_timeout(Sandbox *s, uint64_t timeout_usec, sd_bus_error *error) {
        if (timeout_usec == 0)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "A timeout of 0 makes no sense; use Stop or Kill to end sandbox %s", s->id);
        if (s->state == SANDBOX_STOPPING)
                return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING, "Sandbox %s is stopping", s->id);

        s->timeout_usec = timeout_usec;
        /* One in the making counts from when it runs, as does one that is on disk. */
        if (has_guest(s)) {
                s->priv->deadline_boot_usec = from_now(timeout_usec);
                int r = sandbox_arm_deadline(s);
                if (r < 0)
                        return sd_bus_error_set_errno(error, r);
        }
        if (!sandbox_on_disk(s))
                s->deadline_usec = usec_add(clock_usec(CLOCK_REALTIME), timeout_usec);
        save_anywhere(s);
        sandbox_changed(s, "TimeoutUSec");
        sandbox_changed(s, "Deadline");
        return 0;
}

/* Idle. */

static uint64_t look_usec(const Sandbox *s) {
        return MIN(MAX(s->idle_timeout_usec / LOOKS, (uint64_t) LOOK_MIN_USEC), (uint64_t) LOOK_MAX_USEC);
}

void sandbox_touch(Sandbox *s) {
        s->priv->active_boot_usec = clock_usec(CLOCK_BOOTTIME);
}

int sandbox_arm_idle(Sandbox *s) {
        uint64_t usec = UINT64_MAX;

        if (s->idle_timeout_usec != UINT64_MAX)
                usec = usec_add(s->priv->active_boot_usec, s->idle_timeout_usec);
        return arm(s, &s->priv->idle_timer, usec, on_idle_timer);
}

static void settle_idle(Sandbox *s, bool busy) {
        struct SandboxPrivate *p = s->priv;
        uint64_t now = clock_usec(CLOCK_BOOTTIME);
        int r;

        p->idle_asking = false;
        if (!has_guest(s) || s->idle_timeout_usec == UINT64_MAX)
                return;
        /* It may have become idle a moment ago. */
        if (busy || p->idle_was_busy)
                sandbox_touch(s);
        p->idle_was_busy = busy;
        if (now >= usec_add(p->active_boot_usec, s->idle_timeout_usec)) {
                time_over(s, "idle time-out");
                return;
        }
        r = busy ? arm(s, &p->idle_timer, usec_add(now, look_usec(s)), on_idle_timer) : sandbox_arm_idle(s);
        if (r < 0)
                log_warning_errno(r, "Sandbox %s: its idle time-out can't be watched: %m", s->id);
}

static bool any_runs(const uint8_t *body, size_t size) {
        TlvReader reader = TLV_READER_INIT(body, size);
        AgentProcess process;
        Tlv t;

        while (tlv_next(&reader, &t) > 0) {
                if (t.tag != AGENT_TAG_PROCESS || t.len < sizeof(process))
                        continue;
                memcpy(&process, t.data, sizeof(process));
                if (process.state == 0)
                        return true;
        }
        return false;
}

static void on_processes(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size, bool more,
                         void *userdata) {
        if (!more)
                settle_idle(userdata, error < 0 || any_runs(body, size));
}

static uint64_t count_connections(const SandboxStatistics *st) {
        for (size_t i = 0; i < st->n_counters; i++)
                if (streq(st->counters[i].name, "vsock-connections"))
                        return st->counters[i].value;
        return UINT64_MAX;
}

/* Something of use has happened since then. */
static bool active_lately(const Sandbox *s) {
        return clock_usec(CLOCK_BOOTTIME) < usec_add(s->priv->active_boot_usec, s->idle_timeout_usec);
}

static void on_statistics(Sandbox *s, const sd_bus_error *error, const SandboxStatistics *st, void *userdata) {
        struct SandboxPrivate *p = s->priv;
        /* The control stream is one. */
        bool busy = error || count_connections(st) > 1 || (s->slot != 0 && !st->net);

        if (!busy && st->net)
                p->active_boot_usec = MAX(p->active_boot_usec, st->net->used / NSEC_PER_USEC);
        if (!busy && !p->idle_was_busy && active_lately(s))
                settle_idle(s, false);
        else if (busy || s->state != SANDBOX_RUNNING ||
            vmm_client_agent(s->priv->vmm, AGENT_LIST_PROCESSES, NULL, LIST_TIMEOUT_USEC, on_processes, s) < 0)
                settle_idle(s, true);
}

static int on_idle_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Sandbox *s = userdata;
        struct SandboxPrivate *p = s->priv;

        if (p->idle_asking)
                return 0;
        p->idle_asking = true;
        /* Something was asked of it meanwhile: that alone needs no look. */
        if (s->state == SANDBOX_RUNNING && !p->idle_was_busy && active_lately(s))
                settle_idle(s, false);
        else if (s->state != SANDBOX_RUNNING || sandbox_get_statistics(s, on_statistics, NULL, &e) < 0)
                settle_idle(s, true);
        return 0;
}

int sandbox_set_idle_timeout(Sandbox *s, uint64_t idle_timeout_usec, sd_bus_error *error) {
        if (s->state == SANDBOX_STOPPING)
                return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING, "Sandbox %s is stopping", s->id);

        s->idle_timeout_usec = idle_timeout_usec;
        sandbox_touch(s);
        int r = has_guest(s) ? sandbox_arm_idle(s) : 0;
        if (r < 0)
                return sd_bus_error_set_errno(error, r);
        save_anywhere(s);
        sandbox_changed(s, "IdleTimeoutUSec");
        return 0;
}

void sandbox_unbind(Sandbox *s) {
        free(s->bound_client);
        s->bound_client = NULL;
        save_anywhere(s);
}
