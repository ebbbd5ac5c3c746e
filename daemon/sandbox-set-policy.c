/* SPDX-License-Identifier: Apache-2.0 */

/* Another network policy: for a running sandbox it is in force when it is answered, with flows cut that it does not allow;
 * of a paused one it is on disk.
 *
 * A turn, so that a rollback does not open what this has closed. */

#include "daemon/host-network.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"

typedef struct PolicyChange {
        Turn turn;
        Sandbox *sandbox;          /* NULL: it ended, and who asked knows */
        LoadedPolicy *policy;      /* the new one; while that is written, the one before */
        bool written;              /* it is on its way to the disk */
        bool again;                /* asked a second time, for cube-netd went meanwhile */
        unsigned n_waits;          /* callbacks that will come */
        SandboxDone done;
        void *userdata;
} PolicyChange;

static void ask(PolicyChange *c);

static void change_free(PolicyChange *c) {
        loaded_policy_unref(c->policy);
        free(c);
}

/* The end of each callback: false when nobody waits any more, and then it may be gone. */
static bool change_wanted(PolicyChange *c) {
        c->n_waits--;
        if (c->sandbox)
                return true;
        if (c->n_waits == 0)
                change_free(c);
        return false;
}

static void finish(PolicyChange *c, const sd_bus_error *error) {
        Sandbox *s = c->sandbox;

        if (c->done)
                c->done(s, error, c->userdata);
        sandbox_end_turn(s, &c->turn);
        change_free(c);
}

static void fail(PolicyChange *c, int r, const char *message) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        (void) sd_bus_error_setf(&e, network_error_name(r), "The network policy of sandbox %s is as it was: %s", c->sandbox->id,
                                 isempty(message) ? strerror(-r) : message);
        finish(c, &e);
}

static void take_over(PolicyChange *c) {
        Sandbox *s = c->sandbox;
        LoadedPolicy *before = s->policy;

        s->policy = c->policy;
        c->policy = before;
}

/* The sandbox has it, and it is in force. */
static void tell_in_force(PolicyChange *c) {
        Sandbox *s = c->sandbox;

        sandbox_save_soon(s);
        sandbox_changed(s, "NetworkPolicy");
        finish(c, NULL);
}

static void settle(PolicyChange *c) {
        take_over(c);
        tell_in_force(c);
}

static void on_ready(int error, const char *message, void *userdata) {
        PolicyChange *c = userdata;

        if (!change_wanted(c))
                return;
        if (error < 0)
                fail(c, error, message);
        else
                ask(c);
}

static void wait_until_ready(PolicyChange *c) {
        c->n_waits++;
        int r = host_network_wait(c->sandbox->manager->network, on_ready, c);
        if (r >= 0)
                return;
        c->n_waits--;
        fail(c, r, NULL);
}

static void ask_again(PolicyChange *c, int error, const char *message) {
        if (!netd_is_away(error) || c->again) {
                fail(c, error, message);
                return;
        }
        c->again = true;
        wait_until_ready(c);
}

static void on_set(int error, const NetResult *result, void *userdata) {
        PolicyChange *c = userdata;

        if (!change_wanted(c))
                return;
        if (error < 0)
                ask_again(c, error, result->message);
        else
                settle(c);
}

static void ask(PolicyChange *c) {
        Sandbox *s = c->sandbox;
        NetRules rules = sandbox_policy_net_rules(loaded_policy_rules(c->policy));

        /* Closed, it is opened with the policy that it has then. */
        if (s->slot == 0 || !s->priv->net_open) {
                settle(c);
                sandbox_network_reopen(s);
                return;
        }
        /* A new cube-netd is told the present policy first: this comes behind it. */
        if (!host_network_is_ready(s->manager->network)) {
                wait_until_ready(c);
                return;
        }
        int r = net_client_set_policy(s->manager->net, s->slot, &rules, on_set, c);
        c->n_waits += r >= 0;
        if (r < 0)
                ask_again(c, r, NULL);
}

static void on_kept(int error, void *userdata) {
        PolicyChange *c = userdata;

        if (!change_wanted(c))
                return;
        /* Resumed meanwhile, it runs with the new one: no sandbox.json is to be written any more. */
        if (error < 0 && (c->sandbox->priv->net_open || c->sandbox->state == SANDBOX_RUNNING)) {
                tell_in_force(c);
                return;
        }
        if (error < 0) {
                take_over(c);
                fail(c, error, NULL);
                return;
        }
        sandbox_changed(c->sandbox, "NetworkPolicy");
        finish(c, NULL);
}

static void keep(PolicyChange *c) {
        Sandbox *s = c->sandbox;

        /* What is written is what the sandbox has. */
        take_over(c);
        int r = s->priv->layers_unknown ? -ENOENT : sandbox_keep(s, s->state, s->disk_top, on_kept, c);
        c->n_waits += r >= 0;
        c->written = r >= 0;
        if (r < 0) {
                take_over(c);
                fail(c, r, NULL);
        }
}

static void on_turn(Sandbox *s, Turn *t) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        PolicyChange *c = (PolicyChange *) t;

        if (sandbox_on_disk(s))
                keep(c);
        else if (sandbox_check_running(s, &e) >= 0)
                ask(c);
        else
                finish(c, &e);
}

static void on_drop(Sandbox *s, Turn *t, const sd_bus_error *error) {
        PolicyChange *c = (PolicyChange *) t;

        /* A resume of it failed: it stays, and who asked is told that this came to nothing. */
        if (c->written && sandbox_on_disk(s)) {
                take_over(c);
                sandbox_keep_again(s);
        }
        c->sandbox = NULL;
        if (c->done)
                c->done(s, error, c->userdata);
        if (c->n_waits == 0)
                change_free(c);
}

int sandbox_set_policy(Sandbox *s, LoadedPolicy *policy, SandboxDone done, void *userdata, sd_bus_error *error) {
        int r = sandbox_on_disk(s) ? 0 : sandbox_check_running(s, error);
        if (r < 0)
                return r;

        PolicyChange *c = new0(PolicyChange, 1);
        if (!c)
                return sd_bus_error_set_errno(error, ENOMEM);
        *c = (PolicyChange) {
                .turn = { .start = on_turn, .drop = on_drop },
                .sandbox = s,
                .policy = loaded_policy_ref(policy),
                .done = done,
                .userdata = userdata,
        };
        r = sandbox_take_turn(s, &c->turn, error);
        if (r < 0)
                change_free(c);
        return r;
}
