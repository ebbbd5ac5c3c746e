/* SPDX-License-Identifier: Apache-2.0 */

/* The network of a sandbox: SetNetworkPolicy and ChangeNetworkPolicy, and what is told about it.
 *
 * Of one sandbox one policy is loaded and set at a time, in the order of the calls. So the last one wins, and a change is
 * worked out from the policy that it changes: of two at once none is lost. */

#include "daemon/audit.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"
#include "dbus/bus-policy.h"
#include "dbus/bus-tenant.h"
#include "dbus/bus-turn.h"

typedef struct Change {
        sd_bus_message *call;
        uid_t actor;
} Change;

static void on_policy_set(Sandbox *s, const sd_bus_error *error, void *userdata) {
        Change *c = userdata;

        if (sd_bus_error_is_set(error))
                bus_reply_error(c->call, error, 0);
        else {
                audit_policy(s->manager->audit, s, c->actor);
                (void) sd_bus_reply_method_return(c->call, NULL);
        }
        bus_turn_end(c->call);
        sd_bus_message_unref(c->call);
        free(c);
}

static int start_change(sd_bus_message *m, Sandbox *s, uid_t actor, const SandboxPolicy *rules, sd_bus_error *error) {
        const BusPolicyFor whom = { .actor = actor, .tenant = bus_tenant_of(s, actor), .key = "sandbox", .value = s->id };
        _cleanup_(loaded_policy_unrefp) LoadedPolicy *p = NULL;

        int r = bus_policy_load(m, &whom, rules, &p, error);
        if (r <= 0)
                return r < 0 ? r : 1;

        Change *c = new0(Change, 1);
        if (!c)
                return -ENOMEM;
        *c = (Change) { .call = sd_bus_message_ref(m), .actor = actor };
        bus_turn_keep(m);
        r = sandbox_set_policy(s, p, on_policy_set, c, error);
        if (r < 0) {
                bus_turn_end(m);
                sd_bus_message_unref(c->call);
                free(c);
                return r;
        }
        return 1;
}

static int set_policy(sd_bus_message *m, Sandbox *s, uid_t actor, sd_bus_error *error) {
        _cleanup_bus_policy_ BusPolicy policy = {};

        int r = bus_policy_read(m, &policy, error);
        return r < 0 ? r : start_change(m, s, actor, &policy.rules, error);
}

static int change_policy(sd_bus_message *m, Sandbox *s, uid_t actor, sd_bus_error *error) {
        _cleanup_(sandbox_policy_done) SandboxPolicy add = {}, remove = {}, next = {};
        const char *missing = NULL;

        int r = bus_policy_read_lists(m, &add, error);
        if (r >= 0)
                r = bus_policy_read_lists(m, &remove, error);
        if (r >= 0)
                r = sandbox_policy_change(loaded_policy_rules(s->policy), &add, &remove, &next, &missing);
        if (r == -ESRCH)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "The network policy of sandbox %s has no rule '%s' there; 'cubectl policy show %s' "
                                         "shows those that it has", s->id, missing, s->id);
        if (r >= 0)
                r = bus_policy_check(&next, error);
        return r < 0 ? r : start_change(m, s, actor, &next, error);
}

typedef int (*SetPolicy)(sd_bus_message *m, Sandbox *s, uid_t actor, sd_bus_error *error);

static int in_turn(sd_bus_message *m, Sandbox *s, SetPolicy set, sd_bus_error *error) {
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r > 0)
                r = bus_turn_take(m, s->id, error);
        if (r > 0)
                r = set(m, s, actor, error);
        bus_turn_leave(m);
        return r < 0 ? r : 1;
}

int bus_method_set_network_policy(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return in_turn(m, userdata, set_policy, error);
}

int bus_method_change_network_policy(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return in_turn(m, userdata, change_policy, error);
}

int bus_property_sandbox_policy(sd_bus *bus, const char *path, const char *interface, const char *property,
                                sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Sandbox *s = userdata;
        return bus_policy_append(reply, loaded_policy_rules(s->policy));
}

int bus_append_network_statistics(sd_bus_message *m, const NetStats *st) {
        const struct {
                const char *name;
                uint64_t value;
        } counters[] = {
                { "NetworkPacketsOut", st->out.packets },
                { "NetworkBytesOut", st->out.bytes },
                { "NetworkPacketsIn", st->in.packets },
                { "NetworkBytesIn", st->in.bytes },
                { "NetworkDeniedPacketsOut", st->out_denied.packets },
                { "NetworkDeniedBytesOut", st->out_denied.bytes },
                { "NetworkDeniedPacketsIn", st->in_denied.packets },
                { "NetworkDeniedBytesIn", st->in_denied.bytes },
                { "NetworkDeniedPolicy", st->denied[NET_DENIED_POLICY] },
                { "NetworkDeniedSpecialRange", st->denied[NET_DENIED_SPECIAL] },
                { "NetworkDeniedHost", st->denied[NET_DENIED_HOST] },
                { "NetworkDeniedInbound", st->denied[NET_DENIED_INBOUND] },
                { "NetworkDeniedOwner", st->denied[NET_DENIED_OWNER] },
                { "NetworkDeniedSpoofed", st->denied[NET_DENIED_SPOOFED] },
                { "NetworkDeniedMalformed", st->denied[NET_DENIED_MALFORMED] },
                { "NetworkDeniedRate", st->denied[NET_DENIED_RATE] },
                { "NetworkDeniedConnections", st->denied[NET_DENIED_FLOWS] },
                { "NetworkDeniedFragment", st->denied[NET_DENIED_FRAGMENT] },
                { "NetworkDeniedUnrelated", st->denied[NET_DENIED_UNRELATED] },
                { "NetworkAuditLost", st->audit_lost },
                { "NetworkOpenConnections", st->flows_open },
        };
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(counters); i++)
                r = sd_bus_message_append(m, "{sv}", counters[i].name, "t", counters[i].value);
        return r;
}
