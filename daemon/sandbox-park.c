/* SPDX-License-Identifier: Apache-2.0 */

/* Parked: a paused sandbox that connections of this host resume. It has links, as one that runs, and we hold their
 * descriptors in place of a VMM. What the filter lets through waits in the tap; that this is readable resumes the sandbox,
 * once, and the new VMM is given the tap with all that waits there.
 *
 * One that has just been paused keeps the links that it had. Where these are gone (cubed or the host was started anew, a
 * resume came to nothing, somebody took them away) others are made with the same address, for one sandbox after the other,
 * since slots for new sandboxes are made behind them.
 *
 * A resume that fails leaves the sandbox failed, and that one is not parked. One that can't even begin is tried again by
 * what comes after a while; until then connections are refused. */

#include "base/parse.h"
#include "daemon/host-network.h"
#include "daemon/log.h"
#include "daemon/parked-tap.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

#define AGAIN_MIN_USEC USEC_PER_SEC
#define AGAIN_MAX_USEC (60 * USEC_PER_SEC)

static void ask_next(Manager *m);

bool sandbox_parks(const Sandbox *s) {
        bool paused = s->state == SANDBOX_PAUSED || s->state == SANDBOX_PAUSING;

        return s->auto_resume && paused && s->memory_top && !s->priv->layers_unknown && s->priv->template;
}

static void drop_links(Sandbox *s) {
        host_network_drop_slot(s->manager->network, TAKE_FD(s->priv->netns_fd), TAKE_FD(s->priv->tap_fd));
}

static void wait_in_line(Sandbox *s) {
        s->priv->park = PARK_WAITING;
        ask_next(s->manager);
}

static int on_again(sd_event_source *source, uint64_t usec, void *userdata) {
        Sandbox *s = userdata;

        s->priv->park_timer = sd_event_source_disable_unref(s->priv->park_timer);
        if (sandbox_parks(s) && s->priv->park == PARK_NONE)
                wait_in_line(s);
        return 0;
}

void sandbox_park_later(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        sandbox_drop_park(s);
        (void) sandbox_network_close(s, NULL);
        drop_links(s);
        if (!sandbox_parks(s))
                return;
        p->park_delay_usec = MIN(MAX(2 * p->park_delay_usec, (uint64_t) AGAIN_MIN_USEC), (uint64_t) AGAIN_MAX_USEC);
        int r = sd_event_add_time_relative(s->manager->event, &p->park_timer, CLOCK_MONOTONIC, p->park_delay_usec, 0, on_again, s);
        if (r < 0)
                log_warning_errno(r, "Sandbox %s: connections don't resume it any more: %m", s->id);
}

void sandbox_park_anew(Sandbox *s) {
        log_warning("Sandbox %s: somebody took its links away while it was paused, making others", s->id);
        sandbox_park_later(s);
}

/* The tap. */

static int on_tap(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Sandbox *s = userdata;

        if (revents & (EPOLLERR|EPOLLHUP)) {
                sandbox_park_anew(s);
                return 0;
        }
        log_debug("Sandbox %s: a connection of this host resumes it", s->id);
        s->priv->auto_resuming = true;
        if (sandbox_resume(s, true, NULL, NULL, &e) < 0) {
                log_warning("Sandbox %s: connections to it are refused for a while: %s", s->id, strempty(e.message));
                s->priv->auto_resuming = false;
                if (!s->priv->park_timer)
                        sandbox_park_later(s);
        }
        return 0;
}

static int watch(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        /* It was being closed, which ends behind what is written now. */
        if (p->net_closing)
                return -EBUSY;
        int r = parked_tap_begin(p->tap_fd);
        if (r >= 0)
                r = sandbox_network_park(s);
        if (r >= 0)
                r = sd_event_add_io(s->manager->event, &p->park_source, p->tap_fd, EPOLLIN, on_tap, s);
        return r < 0 ? r : sd_event_source_set_enabled(p->park_source, SD_EVENT_ONESHOT);
}

static void begin(Sandbox *s) {
        int r = watch(s);

        if (r >= 0) {
                s->priv->park = PARK_PARKED;
                return;
        }
        log_warning_errno(r, "Sandbox %s: connections don't resume it yet, trying again: %m", s->id);
        sandbox_park_later(s);
}

/* Links. */

static void on_place(int error, const char *message, NetworkSlot *slot, void *userdata);

static void ask(Sandbox *s, uint32_t slot) {
        s->priv->park = PARK_ASKED;
        int r = host_network_take_slot(s->manager->network, slot, on_place, s);
        if (r >= 0)
                return;
        log_warning_errno(r, "Sandbox %s: connections don't resume it yet, trying again: %m", s->id);
        sandbox_park_later(s);
}

static void answered(Sandbox *s, int error, const char *message, NetworkSlot *slot) {
        struct SandboxPrivate *p = s->priv;

        /* As a resume does: better another address than none. */
        if ((error == -EINVAL || error == -EEXIST) && s->slot != 0 && !p->slot_other) {
                p->slot_other = true;
                ask(s, 0);
                return;
        }
        p->slot_other = false;
        if (error < 0) {
                log_warning("Sandbox %s: connections don't resume it yet, trying again: %s", s->id, message);
                sandbox_park_later(s);
                return;
        }
        bool moved = slot->slot != s->slot;
        sandbox_take_over_slot(s, slot);
        if (moved)
                sandbox_keep_again(s);
        begin(s);
}

static void on_place(int error, const char *message, NetworkSlot *slot, void *userdata) {
        Sandbox *s = userdata;
        Manager *m = s->manager;
        bool asked = s->priv->park == PARK_ASKED;

        if (asked)
                s->priv->park = PARK_NONE;
        if (asked && sandbox_in_making(s))
                sandbox_give_slot(s, error, message, slot);
        else if (asked && sandbox_parks(s))
                answered(s, error, message, slot);
        ask_next(m);
}

/* NULL: nobody waits, or somebody's are being made. */
static Sandbox *first_in_line(const Manager *m) {
        Sandbox *first = NULL;

        for (size_t i = 0; i < m->n_sandboxes; i++) {
                if (m->sandboxes[i]->priv->park == PARK_ASKED)
                        return NULL;
                if (!first && m->sandboxes[i]->priv->park == PARK_WAITING)
                        first = m->sandboxes[i];
        }
        return first;
}

/* One that fails at once leads back here, and is followed by the next one; not on top of it. */
static void ask_next(Manager *m) {
        if (m->priv->park_asking)
                return;
        m->priv->park_asking = true;
        for (Sandbox *s; (s = first_in_line(m));) {
                s->priv->slot_other = false;
                ask(s, s->slot);
        }
        m->priv->park_asking = false;
}

/* Its way. */

void sandbox_park(Sandbox *s, int netns_fd, int tap_fd) {
        struct SandboxPrivate *p = s->priv;

        if (!sandbox_parks(s) || p->park != PARK_NONE || p->park_timer) {
                host_network_drop_slot(s->manager->network, netns_fd, tap_fd);
                return;
        }
        if (tap_fd < 0) {
                wait_in_line(s);
                return;
        }
        p->netns_fd = netns_fd;
        p->tap_fd = tap_fd;
        begin(s);
}

SandboxPlace sandbox_leave_park(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        if (p->park == PARK_ASKED)
                return SANDBOX_PLACE_COMES;
        bool parked = p->park == PARK_PARKED;
        sandbox_drop_park(s);
        if (!parked)
                return SANDBOX_PLACE_NONE;
        int r = parked_tap_end(p->tap_fd);
        if (r >= 0)
                return SANDBOX_PLACE_THERE;
        log_warning_errno(r, "Sandbox %s: the tap it was parked with can't be used, making another: %m", s->id);
        drop_links(s);
        return SANDBOX_PLACE_NONE;
}

void sandbox_drop_park(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;
        bool asked = p->park == PARK_ASKED;

        p->park_source = sd_event_source_disable_unref(p->park_source);
        p->park_timer = sd_event_source_disable_unref(p->park_timer);
        p->park = PARK_NONE;
        if (asked)
                ask_next(s->manager);
}

int sandbox_set_auto_resume(Sandbox *s, bool auto_resume, sd_bus_error *error) {
        if (s->state == SANDBOX_STOPPING)
                return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING, "Sandbox %s is stopping", s->id);

        s->auto_resume = auto_resume;
        if (!sandbox_on_disk(s))
                sandbox_save_soon(s);
        sandbox_keep_again(s);
        sandbox_changed(s, "AutoResume");
        sandbox_changed(s, "Parked");
        if (auto_resume)
                sandbox_park(s, -EBADF, -EBADF);
        else if (sandbox_on_disk(s))
                sandbox_park_later(s);
        return 0;
}

void manager_park_sandboxes(Manager *m) {
        for (size_t i = 0; i < m->n_sandboxes; i++)
                sandbox_park(m->sandboxes[i], -EBADF, -EBADF);
}
