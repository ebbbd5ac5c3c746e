/* SPDX-License-Identifier: Apache-2.0 */

/* Limits that change while the guest runs.
 *
 * Those of the network are cube-netd's, and are set first.
 * CPU time and the scope's memory are PID 1's. Of the guest's own memory, what is above that it was
 * created with is plugged (virtio-mem), what is below lies in the balloon. The scope's limit is never
 * below what the guest holds: when memory grows it is raised first, when memory shrinks it is lowered
 * once the guest has given back. A guest that does not do its part in time keeps what it holds
 * then, and so does its limit. What a guest says about itself can hurt nobody but itself. */

#include "base/parse.h"
#include "daemon/host-network.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "daemon/scope.h"
#include "daemon/template.h"
#include "dbus/bus-errors.h"

/* How long a guest may take altogether, and without getting any further. */
#define GUEST_TIMEOUT_USEC (300 * USEC_PER_SEC)
#define GUEST_STALL_USEC (60 * USEC_PER_SEC)
/* A guest that is quick shall not wait for us, one that is not is not bothered too often. */
#define GUEST_POLL_FIRST_USEC (5 * USEC_PER_MSEC)
#define GUEST_POLL_USEC (100 * USEC_PER_MSEC)

/* Keeps what is plugged, and makes the rest of the balloon. */
static MemoryPlan balloon_plan(const Sandbox *s, uint64_t plugged, uint64_t mem) {
        return (MemoryPlan) { .plugged = plugged, .balloon = s->boot_mem_bytes + plugged - mem };
}

/* How a guest comes from what is to so much memory. Either both of it grow or both shrink, so that it
 * never has more meanwhile than before and after. */
static MemoryPlan make_plan(const Sandbox *s, MemoryPlan is, uint64_t mem) {
        if (is.plugged > 0 && is.balloon > 0 && mem < s->boot_mem_bytes + is.plugged)
                return balloon_plan(s, is.plugged, mem);
        if (mem >= s->boot_mem_bytes)
                return (MemoryPlan) { .plugged = mem - s->boot_mem_bytes };
        return (MemoryPlan) { .balloon = s->boot_mem_bytes - mem };
}

static void finish(Sandbox *s, const sd_bus_error *error) {
        struct SandboxPrivate *p = s->priv;
        SandboxDone done = p->limits_done;

        if (!done)
                return;
        p->limits_done = NULL;
        p->limits_timer = sd_event_source_disable_unref(p->limits_timer);
        sandbox_end_turn(s, &p->limits_turn);
        done(s, error, p->limits_userdata);
}

static void on_drop(Sandbox *s, Turn *t, const sd_bus_error *error) {
        struct SandboxPrivate *p = s->priv;
        SandboxDone done = p->limits_done;

        p->limits_done = NULL;
        p->limits_timer = sd_event_source_disable_unref(p->limits_timer);
        if (done)
                done(s, error, p->limits_userdata);
}

static void finish_errno(Sandbox *s, int r, const char *message) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        (void) sandbox_set_error(s, &e, r, message);
        finish(s, &e);
}

/* PID 1's part, the last of all. */

static void on_scope(Scope *scope, const sd_bus_error *error, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        char a[FORMAT_SIZE_MAX], b[FORMAT_SIZE_MAX];
        Sandbox *s = userdata;
        struct SandboxPrivate *p = s->priv;

        if (error) {
                finish(s, error);
                return;
        }
        if (p->limits.cpu_quota_usec > 0) {
                s->cpu_quota_usec = p->limits.cpu_quota_usec;
                sandbox_changed(s, "CPUQuotaPerSecUSec");
        }
        if (p->limits.mem_bytes > 0) {
                s->mem_bytes = p->limits_reached;
                sandbox_changed(s, "Memory");
        }
        sandbox_save_soon(s);

        if (p->limits_reached == p->limits.mem_bytes) {
                finish(s, NULL);
                return;
        }
        (void) sd_bus_error_setf(&e, BUS_ERROR_GUEST_TIMEOUT, "The guest of sandbox %s came to %s of memory and no further, not to %s; "
                                 "it stays there", s->id, format_size(a, p->limits_reached), format_size(b, p->limits.mem_bytes));
        finish(s, &e);
}

/* mem_bytes: what the guest shall be able to hold; 0 leaves that. */
static int set_scope(Sandbox *s, uint64_t mem_bytes, uint64_t cpu_quota_usec, ScopeDone done) {
        uint64_t max = mem_bytes > 0 ? scope_memory_max(mem_bytes) : 0;

        return scope_set_limits(s->priv->scope, max, mem_bytes, cpu_quota_usec, done, s);
}

static void settle(Sandbox *s, uint64_t reached) {
        struct SandboxPrivate *p = s->priv;

        p->limits_reached = reached;
        p->limits_timer = sd_event_source_disable_unref(p->limits_timer);
        int r = set_scope(s, reached, p->limits.cpu_quota_usec, on_scope);
        if (r < 0)
                finish_errno(s, r, NULL);
}

/* The guest's part */

static void on_asked(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        Sandbox *s = userdata;

        /* One that ends tells its waiter itself; and once PID 1 has been asked it has the last word. */
        if (error < 0 && error != -ECONNRESET && s->priv->limits_done && s->priv->limits_timer)
                finish_errno(s, error, message);
}

static int ask(Sandbox *s, VmmOp op, VmmTag tag, uint64_t bytes) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(256);

        if (!s->priv->vmm)
                return -ENOTCONN;
        tlv_put_u64(&w, tag, bytes);
        return vmm_client_call(s->priv->vmm, op, &w, NULL, 0, GUEST_STALL_USEC, on_asked, s);
}

static int ask_plan(Sandbox *s, MemoryPlan want) {
        s->priv->limits_plan = want;
        int r = ask(s, VMM_OP_BALLOON, VMM_TAG_BALLOON_BYTES, want.balloon);

        if (r >= 0 && s->plug_bytes > 0)
                r = ask(s, VMM_OP_RESIZE, VMM_TAG_PLUGGED_BYTES, want.plugged);
        return r;
}

static uint64_t stalled_usec(const Sandbox *s) {
        return clock_usec(CLOCK_MONOTONIC) - s->priv->limits_moved_usec;
}

static uint64_t counter(const SandboxStatistics *st, const char *name) {
        for (size_t i = 0; i < st->n_counters; i++)
                if (streq(st->counters[i].name, name))
                        return st->counters[i].value;
        return 0;
}

/* As the guest tells it, but nothing that can't be. */
static MemoryPlan what_is(const Sandbox *s, const SandboxStatistics *st) {
        uint64_t plugged = ALIGN_DOWN(MIN(counter(st, "mem-plugged-bytes"), s->plug_bytes), MIB(2));
        uint64_t balloon = ALIGN_DOWN(MIN(counter(st, "balloon-bytes"), s->boot_mem_bytes + plugged - 1), KIB(4));

        return (MemoryPlan) { .plugged = plugged, .balloon = balloon };
}

/* Between what it had and what it is to have, whatever it says. */
static uint64_t held(const Sandbox *s, MemoryPlan is) {
        uint64_t target = s->priv->limits.mem_bytes;
        uint64_t mem = s->boot_mem_bytes + is.plugged - is.balloon;

        return MIN(MAX(mem, MIN(s->mem_bytes, target)), MAX(s->mem_bytes, target));
}

/* It does not get any further: what can't be unplugged goes into the balloon, less of it should some
 * be unplugged yet. 1 when something has changed. */
static int help_out(Sandbox *s, MemoryPlan is) {
        struct SandboxPrivate *p = s->priv;
        uint64_t mem = p->limits.mem_bytes;

        if (p->limits_helped ? is.plugged == p->limits_plan.plugged
                             : mem >= s->mem_bytes || is.plugged <= p->limits_plan.plugged ||
                                       stalled_usec(s) < GUEST_STALL_USEC / 2)
                return 0;
        p->limits_helped = true;
        int r = ask_plan(s, mem < s->boot_mem_bytes + is.plugged ? balloon_plan(s, is.plugged, mem) : make_plan(s, is, mem));
        return r < 0 ? r : 1;
}

/* No further: the limit is to fit. */
static int give_up(Sandbox *s, MemoryPlan is, uint64_t mem) {
        int r = ask_plan(s, is);
        if (r >= 0)
                settle(s, mem);
        return r;
}

static int on_poll_timer(sd_event_source *source, uint64_t usec, void *userdata);

static int poll_later(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        p->limits_timer = sd_event_source_disable_unref(p->limits_timer);
        p->limits_poll_usec = MIN(p->limits_poll_usec * 2, (uint64_t) GUEST_POLL_USEC);
        return sd_event_add_time_relative(s->manager->event, &p->limits_timer, CLOCK_MONOTONIC, p->limits_poll_usec, 0,
                                          on_poll_timer, s);
}

static void on_statistics(Sandbox *s, const sd_bus_error *error, const SandboxStatistics *st, void *userdata) {
        struct SandboxPrivate *p = s->priv;

        /* One that ends tells its waiter itself. */
        if (error || !p->limits_done)
                return;
        /* A VMM that is busy may answer next time. */
        if (st->n_counters == 0) {
                int k = stalled_usec(s) < GUEST_STALL_USEC ? poll_later(s) : -ETIMEDOUT;
                if (k < 0)
                        finish_errno(s, k, "its VMM does not say what it has");
                return;
        }

        MemoryPlan is = what_is(s, st);
        uint64_t mem = held(s, is);
        int r = help_out(s, is);
        if (r == 0 && mem == p->limits.mem_bytes) {
                settle(s, mem);
                return;
        }
        if (mem != p->limits_held)
                p->limits_moved_usec = clock_usec(CLOCK_MONOTONIC);
        p->limits_held = mem;

        if (r == 0 && (stalled_usec(s) >= GUEST_STALL_USEC || clock_usec(CLOCK_MONOTONIC) >= p->limits_deadline_usec))
                r = give_up(s, is, mem);
        else if (r >= 0)
                r = poll_later(s);
        if (r < 0)
                finish_errno(s, r, NULL);
}

static int on_poll_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Sandbox *s = userdata;

        if (sandbox_ask_statistics(s, on_statistics, NULL, &e) < 0)
                finish(s, &e);
        return 0;
}

static int ask_guest(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        p->limits_moved_usec = clock_usec(CLOCK_MONOTONIC);
        p->limits_deadline_usec = usec_add(p->limits_moved_usec, GUEST_TIMEOUT_USEC);
        p->limits_held = s->mem_bytes;
        p->limits_poll_usec = GUEST_POLL_FIRST_USEC / 2;
        p->limits_helped = false;
        int r = ask_plan(s, p->limits_plan);
        return r < 0 ? r : poll_later(s);
}

static void on_raised(Scope *scope, const sd_bus_error *error, void *userdata) {
        Sandbox *s = userdata;

        if (error) {
                finish(s, error);
                return;
        }
        int r = ask_guest(s);
        if (r < 0)
                finish_errno(s, r, NULL);
}

static bool has_net(const SandboxLimits *limits) {
        return net_limits_given(&limits->net);
}

static int check_limits(const Sandbox *s, SandboxLimits *limits, sd_bus_error *error) {
        char a[FORMAT_SIZE_MAX], b[FORMAT_SIZE_MAX];

        if (limits->cpu_quota_usec == 0 && limits->mem_bytes == 0 && !has_net(limits))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "No limit to change was given");
        if (limits->cpu_quota_usec > 0 &&
            (limits->cpu_quota_usec < USEC_PER_SEC / 100 || limits->cpu_quota_usec > 1024 * USEC_PER_SEC))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "A CPU quota lies between 1%% and 102400%%");
        if (limits->mem_bytes == 0)
                return 0;

        int r = sandbox_check_memory(s->manager, s->priv->template, &limits->mem_bytes, error);
        if (r < 0)
                return r;
        if (limits->mem_bytes > s->boot_mem_bytes + s->plug_bytes)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "Sandbox %s can grow to %s, not to %s; create it with more, or set GrowMemory= higher before",
                                         s->id, format_size(a, s->boot_mem_bytes + s->plug_bytes),
                                         format_size(b, limits->mem_bytes));
        return 0;
}

static void on_present(Sandbox *s, const sd_bus_error *error, const SandboxStatistics *st, void *userdata) {
        struct SandboxPrivate *p = s->priv;
        uint64_t mem = p->limits.mem_bytes;

        /* One that ends tells its waiter itself. */
        if (error || !p->limits_done)
                return;
        if (st->n_counters == 0) {
                finish_errno(s, -ETIMEDOUT, "its VMM does not say what it has");
                return;
        }

        p->limits_plan = make_plan(s, what_is(s, st), mem);
        int r = mem > s->mem_bytes ? set_scope(s, mem, 0, on_raised) : ask_guest(s);
        if (r < 0)
                finish_errno(s, r, NULL);
}

static int start_machine(Sandbox *s, sd_bus_error *error) {
        const SandboxLimits *limits = &s->priv->limits;

        if (limits->mem_bytes > 0)
                return sandbox_ask_statistics(s, on_present, NULL, error);
        if (limits->cpu_quota_usec > 0)
                return set_scope(s, 0, limits->cpu_quota_usec, on_scope);
        sandbox_save_soon(s);
        finish(s, NULL);
        return 0;
}

/* The network's part, the first of all: it can be refused, and takes nobody's time. */

static void tell_net(Sandbox *s) {
        const NetLimits *l = &s->priv->limits.net;
        const struct {
                const char *property;
                bool changed;
        } all[] = {
                { "NetworkBandwidthOutMax", l->bytes_out > 0 }, { "NetworkBandwidthInMax", l->bytes_in > 0 },
                { "NetworkPacketsOutMax", l->packets_out > 0 }, { "NetworkPacketsInMax", l->packets_in > 0 },
                { "NetworkNewConnectionsMax", l->flows_new > 0 }, { "NetworkOpenConnectionsMax", l->flows_open > 0 },
        };

        for (size_t i = 0; i < ELEMENTSOF(all); i++)
                if (all[i].changed)
                        sandbox_changed(s, all[i].property);
}

static void on_net(int error, const NetResult *result, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Sandbox *s = userdata;
        struct SandboxPrivate *p = s->priv;

        /* One that ends tells its waiter itself. */
        if (!p->limits_done)
                return;
        if (error < 0) {
                (void) sd_bus_error_setf(&e, BUS_ERROR_INTERNAL, "The network limits of sandbox %s %s: %s", s->id,
                                         error == -ECONNRESET ? "may have changed or not; set them again" : "are as they were",
                                         result->message);
                finish(s, &e);
                return;
        }
        s->net_limits = net_limits_over(&p->limits.net, &s->net_limits);
        p->net_limits_set = true;
        sandbox_save_soon(s);
        tell_net(s);
        int r = start_machine(s, &e);
        if (r >= 0)
                return;
        if (!sd_bus_error_is_set(&e))
                (void) sandbox_set_error(s, &e, r, NULL);
        finish(s, &e);
}

static int start(Sandbox *s, sd_bus_error *error) {
        const Config *c = &s->manager->config;

        if (!has_net(&s->priv->limits))
                return start_machine(s, error);
        if (s->slot == 0)
                return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING, "Sandbox %s was started by a cubed that knew no networks, and has none", s->id);
        NetLimits own = net_limits_over(&s->priv->limits.net, &s->net_limits), l = net_limits_resolve(&own, &c->net_limits);
        int r = net_client_set_limits(s->manager->net, s->slot, &l, on_net, s);
        if (r == -ENOTCONN)
                return sd_bus_error_setf(error, BUS_ERROR_INTERNAL, "cube-netd is being started again; try again");
        return r;
}

static void on_turn(Sandbox *s, Turn *t) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        int r = sandbox_in_making(s) ? 0 : sandbox_check_running(s, &e);
        if (r >= 0)
                r = start(s, &e);
        if (r >= 0)
                return;
        if (!sd_bus_error_is_set(&e))
                (void) sandbox_set_error(s, &e, r, NULL);
        finish(s, &e);
}

static int take_turn(Sandbox *s, const SandboxLimits *limits, SandboxDone done, void *userdata, sd_bus_error *error) {
        struct SandboxPrivate *p = s->priv;

        p->limits_turn = (Turn) { .start = on_turn, .drop = on_drop };
        int r = sandbox_take_turn(s, &p->limits_turn, error);
        if (r < 0)
                return r;
        p->limits = *limits;
        p->limits_reached = limits->mem_bytes;
        p->limits_done = done;
        p->limits_userdata = userdata;
        return 0;
}

int sandbox_set_limits(Sandbox *s, const SandboxLimits *limits, SandboxDone done, void *userdata, sd_bus_error *error) {
        SandboxLimits checked = *limits;

        int r = sandbox_check_running(s, error);
        if (r < 0)
                return r;
        r = check_limits(s, &checked, error);
        if (r < 0)
                return r;
        if (s->priv->limits_done)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Limits of sandbox %s are being changed already", s->id);
        return take_turn(s, &checked, done, userdata, error);
}

int sandbox_adapt_memory(Sandbox *s, uint64_t from_bytes, SandboxDone done, void *userdata, sd_bus_error *error) {
        SandboxLimits limits = { .mem_bytes = s->mem_bytes };

        int r = take_turn(s, &limits, done, userdata, error);
        if (r >= 0)
                s->mem_bytes = from_bytes;
        return r;
}

/* A cubed that was restarted in a rollback. */

static void on_settled(Sandbox *s, const sd_bus_error *error, void *userdata) {
        if (error)
                log_warning("Sandbox %s: its memory limit could not be settled: %s", s->id, strempty(error->message));
}

static void on_turn_to_settle(Sandbox *s, Turn *t) {
        settle(s, s->priv->limits.mem_bytes);
}

int sandbox_settle_limit(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        /* A change that waits already does it, by the way that goes with asking the guest. */
        if (p->limits_done) {
                if (p->limits.mem_bytes == 0)
                        p->limits.mem_bytes = p->limits_reached = s->mem_bytes;
                return 0;
        }
        p->limits_turn = (Turn) { .start = on_turn_to_settle, .drop = on_drop };
        int r = sandbox_take_first_turn(s, &p->limits_turn);
        if (r < 0)
                return r;
        p->limits = (SandboxLimits) { .mem_bytes = s->mem_bytes };
        p->limits_done = on_settled;
        return 0;
}
