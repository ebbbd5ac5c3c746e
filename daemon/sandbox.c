/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <time.h>

#include "base/fd-util.h"
#include "daemon/audit.h"
#include "daemon/capture.h"
#include "daemon/host-network.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

/* On top of the guest's own time to power off: until we stop believing that its VMM counts it. */
#define STOP_GRACE_USEC (5 * USEC_PER_SEC)

static const char *const state_table[_SANDBOX_STATE_MAX] = {
        [SANDBOX_CREATING] = "creating",
        [SANDBOX_RUNNING] = "running",
        [SANDBOX_PAUSING] = "pausing",
        [SANDBOX_PAUSED] = "paused",
        [SANDBOX_RESUMING] = "resuming",
        [SANDBOX_STOPPING] = "stopping",
        [SANDBOX_FAILED] = "failed",
};

const char *sandbox_state_to_string(SandboxState s) {
        return (unsigned) s < _SANDBOX_STATE_MAX ? state_table[s] : NULL;
}

SandboxState sandbox_state_from_string(const char *s) {
        for (unsigned i = 0; i < _SANDBOX_STATE_MAX; i++)
                if (s && streq(state_table[i], s))
                        return (SandboxState) i;
        return _SANDBOX_STATE_INVALID;
}

static const char *const end_table[_SANDBOX_END_MAX] = {
        [SANDBOX_END_KILL] = "kill",
        [SANDBOX_END_PAUSE] = "pause",
        [SANDBOX_END_PAUSE_DISK] = "pause-disk",
};

const char *sandbox_end_to_string(SandboxEnd e) {
        return (unsigned) e < _SANDBOX_END_MAX ? end_table[e] : NULL;
}

SandboxEnd sandbox_end_from_string(const char *s) {
        for (unsigned i = 0; i < _SANDBOX_END_MAX; i++)
                if (s && streq(end_table[i], s))
                        return (SandboxEnd) i;
        return _SANDBOX_END_INVALID;
}

uint64_t clock_usec(clockid_t clock) {
        struct timespec ts;

        (void) clock_gettime(clock, &ts);
        return (uint64_t) ts.tv_sec * USEC_PER_SEC + (uint64_t) ts.tv_nsec / NSEC_PER_USEC;
}

int sandbox_new(Manager *m, const char *id, Sandbox **ret) {
        _cleanup_(sandbox_freep) Sandbox *s = new0(Sandbox, 1);
        if (!s)
                return -ENOMEM;

        s->manager = m;
        s->deadline_usec = s->idle_timeout_usec = UINT64_MAX;
        memcpy(s->id, id, MIN(strlen(id), sizeof(s->id) - 1));
        s->priv = new0(struct SandboxPrivate, 1);
        if (!s->priv)
                return -ENOMEM;
        *s->priv = (struct SandboxPrivate) {
                .listen_fd = -EBADF,
                .netns_fd = -EBADF,
                .tap_fd = -EBADF,
                .kvm_fd = -EBADF,
                .overlay_fd = -EBADF,
                .console_fd = -EBADF,
                .process = VMM_PROCESS_INIT,
                .deadline_boot_usec = UINT64_MAX,
        };
        if (asprintf(&s->priv->dir, "%s/sandbox/%s", m->config.runtime_directory, s->id) < 0)
                s->priv->dir = NULL;
        if (asprintf(&s->scope_name, "cube-%s.scope", s->id) < 0)
                s->scope_name = NULL;
        if (!s->priv->dir || !s->scope_name)
                return -ENOMEM;
        *ret = TAKE_PTR(s);
        return 0;
}

static void drop_turns(Sandbox *s) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        (void) sandbox_set_error(s, &e, -ECONNRESET, "cubed is going down");
        sandbox_drop_turns(s, &e);
        sandbox_drop_statistics(s, &e);
}

static void free_waiters(SandboxWaiter *list) {
        for (SandboxWaiter *w; (w = list);) {
                list = w->next;
                free(w);
        }
}

static void private_free(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        drop_turns(s);
        sandbox_drop_network(s);
        sandbox_drop_keep_write(s);
        sandbox_set_tops(s, NULL, NULL);
        sandbox_release_pending(s);
        sd_event_source_disable_unref(p->turn_source);
        sd_event_source_disable_unref(p->exit_source);
        sd_event_source_disable_unref(p->deadline_timer);
        sd_event_source_disable_unref(p->idle_timer);
        sd_event_source_disable_unref(p->step_timer);
        sd_event_source_disable_unref(p->stop_timer);
        sd_event_source_disable_unref(p->save_timer);
        sd_event_source_disable_unref(p->limits_timer);
        sd_event_source_disable_unref(p->checkpoint_timer);
        sd_event_source_disable_unref(p->finish_source);
        sd_event_source_disable_unref(p->park_source);
        sd_event_source_disable_unref(p->park_timer);
        vmm_client_free(p->vmm);
        scope_free(p->scope);
        vmm_process_done(&p->process);
        close_many((int[]) { p->listen_fd, p->kvm_fd, p->overlay_fd, p->console_fd }, 4);
        if (p->template)
                template_release(p->template);
        free_waiters(p->waiters);
        free_waiters(p->change_waiters);
        sd_bus_error_free(&p->error);
        free(p->dir);
        free(p);
}

Sandbox *sandbox_free(Sandbox *s) {
        if (!s)
                return NULL;

        manager_remove_sandbox(s->manager, s);
        if (s->priv)
                private_free(s);
        if (s->vmm_uid > 0 && s->manager->priv && s->manager->priv->uids)
                uid_range_release(s->manager->priv->uids, s->vmm_uid);
        for (char **l = s->labels; l && *l; l++)
                free(*l);
        free(s->labels);
        loaded_policy_unref(s->policy);
        free(s->template_id);
        free(s->template_name);
        free(s->hostname);
        free(s->request_id);
        free(s->bound_client);
        free(s->scope_name);
        free(s->kernel_release);
        free(s);
        return NULL;
}

static void tell_changed(Sandbox *s, char **properties) {
        Manager *m = s->manager;

        if (!s->builder && m->hooks && m->hooks->sandbox_changed)
                m->hooks->sandbox_changed(m, s, properties);
}

void sandbox_changed(Sandbox *s, const char *property) {
        tell_changed(s, (char *[]) { (char *) property, NULL });
}

void sandbox_set_state(Sandbox *s, SandboxState state) {
        if (s->state == state)
                return;
        log_debug("Sandbox %s: %s -> %s", s->id, sandbox_state_to_string(s->state), sandbox_state_to_string(state));
        s->state = state;
        s->state_changed_usec = clock_usec(CLOCK_REALTIME);
        /* At once: who follows them shall not see what never was. */
        tell_changed(s, (char *[]) { (char *) "State", (char *) "StateChangedTimestamp", (char *) "Parked", NULL });
        manager_update_status(s->manager);
}

int sandbox_add_waiter(SandboxWaiter **list, SandboxDone done, void *userdata) {
        if (!done)
                return 0;
        SandboxWaiter *w = new0(SandboxWaiter, 1);
        if (!w)
                return -ENOMEM;
        *w = (SandboxWaiter) { done, userdata, *list };
        *list = w;
        return 0;
}

int sandbox_wait_end(Sandbox *s, SandboxDone done, void *userdata, sd_bus_error *error) {
        int r = sandbox_add_waiter(&s->priv->waiters, done, userdata);

        return r < 0 ? sd_bus_error_set_errno(error, r) : 0;
}

void sandbox_tell_waiters(Sandbox *s, SandboxWaiter **list, const sd_bus_error *error) {
        for (SandboxWaiter *w; (w = *list);) {
                *list = w->next;
                w->done(s, error, w->userdata);
                free(w);
        }
}

static int on_stop_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        Sandbox *s = userdata;

        log_warning("Sandbox %s: its VMM did not end in time, killing it", s->id);
        sandbox_end(s, VMM_EXIT_STOP_TIMEOUT);
        return 0;
}

static void on_stop_reply(VmmClient *c, int error, const char *message, const PacketBody *body, void *userdata) {
        Sandbox *s = userdata;

        /* EPROTO: somebody else has asked it before us, by a signal. */
        if (error >= 0 || error == -ECONNRESET || error == -EPROTO)
                return;
        log_warning("Sandbox %s: its VMM can't stop it (%s), killing it", s->id, message);
        sandbox_end(s, VMM_EXIT_KILLED);
}

static int sandbox_ask_to_stop(Sandbox *s) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(256);
        struct SandboxPrivate *p = s->priv;
        uint64_t timeout = s->manager->config.stop_timeout_usec;

        if (!p->vmm)
                return -ENOTCONN;
        tlv_put_u64(&w, VMM_TAG_TIMEOUT_USEC, timeout);
        int r = vmm_client_call(p->vmm, VMM_OP_STOP, &w, NULL, 0, usec_add(timeout, STOP_GRACE_USEC), on_stop_reply, s);
        if (r < 0)
                return r;
        p->stop_timer = sd_event_source_disable_unref(p->stop_timer);
        p->end_expected = false;
        return sd_event_add_time(s->manager->event, &p->stop_timer, CLOCK_MONOTONIC,
                                 usec_add(clock_usec(CLOCK_MONOTONIC), usec_add(timeout, STOP_GRACE_USEC)), 0,
                                 on_stop_timer, s);
}

int sandbox_stop(Sandbox *s, SandboxDone done, void *userdata, sd_bus_error *error) {
        /* There is no guest that could be asked: not yet, or not any more. */
        if (sandbox_in_making(s) || sandbox_on_disk(s) || s->priv->kept_as != SANDBOX_CREATING)
                return sandbox_kill(s, VMM_EXIT_KILLED, done, userdata, error);

        int r = sandbox_wait_end(s, done, userdata, error);
        if (r < 0)
                return r;
        if (s->state == SANDBOX_STOPPING)
                return 0;

        sandbox_set_state(s, SANDBOX_STOPPING);
        if (sandbox_ask_to_stop(s) < 0)
                sandbox_end(s, VMM_EXIT_KILLED);
        return 0;
}

int sandbox_kill(Sandbox *s, VmmExitReason reason, SandboxDone done, void *userdata, sd_bus_error *error) {
        int r = sandbox_wait_end(s, done, userdata, error);
        if (r < 0)
                return r;

        /* Not even what is on disk stays. */
        s->priv->kept_as = SANDBOX_CREATING;
        if (sandbox_in_making(s))
                sandbox_failf(s, BUS_ERROR_GUEST_FAILED, "Sandbox %s was ended while it was being %s", s->id,
                              s->state == SANDBOX_CREATING ? "created" : "resumed");
        else
                sandbox_end(s, reason);
        return 0;
}
