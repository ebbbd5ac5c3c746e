/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Network policies in calls: an a{sv} is read, loaded into cube-netd, and asked whether its caller may have it.
 *
 * Loading takes a while. Until it is done the message waits; then it goes back into the bus's queue and is dispatched
 * once more, as with polkit, and finds the policy loaded. So a handler works its policy out anew each time, from what is
 * true then. What is not for cube-netd to judge is judged here: keys, types, how many rules there are. */

#include <systemd/sd-bus.h>

#include "daemon/host-network.h"

/* Rules of all lists together, and bytes of their text: what cube-netd takes. */
#define BUS_POLICY_RULES_MAX 4095U
#define BUS_POLICY_BYTES_MAX (256U * 1024U)

typedef struct BusPolicy {
        bool given;
        SandboxPolicy rules;
} BusPolicy;

static inline void bus_policy_done(BusPolicy *p) {
        sandbox_policy_done(&p->rules);
}
#define _cleanup_bus_policy_ _cleanup_(bus_policy_done)

/* The a{sv} at the message's place. What p held on an error is the caller's to free as well. */
int bus_policy_read(sd_bus_message *m, BusPolicy *p, sd_bus_error *error);
/* As bus_policy_read(), without a default: rules to be added to a policy, or taken out of one. */
int bus_policy_read_lists(sd_bus_message *m, SandboxPolicy *ret, sd_bus_error *error);
/* Negative with error set when there is too much of it. */
int bus_policy_check(const SandboxPolicy *p, sd_bus_error *error);
/* The same, as bus_policy_read() reads it. */
int bus_policy_append(sd_bus_message *m, const SandboxPolicy *p);

/* Who asks, for which tenant of his (NULL: none), and what for, as in BusAccess. */
typedef struct BusPolicyFor {
        uid_t actor;
        const char *tenant;
        const char *key, *value;
} BusPolicyFor;
/* rules loaded, and known to be allowed to them. 1 with a reference; 0 when that is being found out: return 1 from the
 * handler and the message will come again; negative with error set. */
int bus_policy_load(sd_bus_message *m, const BusPolicyFor *whom, const SandboxPolicy *rules, LoadedPolicy **ret,
                    sd_bus_error *error);
/* Does m wait for a policy? */
bool bus_policy_is_loading(const sd_bus_message *m);
/* Nothing that waits for a policy comes again. */
void bus_policy_detach(Manager *m);
