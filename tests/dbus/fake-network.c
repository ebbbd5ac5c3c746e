/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/audit.h"
#include "dbus/bus-errors.h"
#include "net/policy.h"
#include "tests/dbus/fake-network.h"

#define LOOK_AGAIN_USEC (10 * USEC_PER_MSEC)

struct LoadedPolicy {
        HostNetwork *network;
        SandboxPolicy rules;
        bool special;
        unsigned n_refs;
        struct LoadedPolicy *next;
};

typedef struct Load {
        HostNetwork *network;
        SandboxPolicy rules;
        PolicyLoadDone done;
        void *userdata;
        sd_event_source *source;
        bool told;
        struct Load *next;
} Load;

struct HostNetwork {
        Manager *manager;
        LoadedPolicy *policies;
        Load *loads;
        LoadedPolicy *deny, *internet;
        uint32_t n_slots;
};

static LoadedPolicy *find(HostNetwork *n, const SandboxPolicy *rules) {
        for (LoadedPolicy *p = n->policies; p; p = p->next)
                if (sandbox_policy_equal(&p->rules, rules))
                        return p;
        return NULL;
}

LoadedPolicy *loaded_policy_ref(LoadedPolicy *p) {
        p->n_refs++;
        return p;
}

LoadedPolicy *loaded_policy_unref(LoadedPolicy *p) {
        if (!p || --p->n_refs > 0)
                return NULL;
        LoadedPolicy **at = &p->network->policies;
        while (*at != p)
                at = &(*at)->next;
        *at = p->next;
        sandbox_policy_done(&p->rules);
        free(p);
        return NULL;
}

const SandboxPolicy *loaded_policy_rules(const LoadedPolicy *p) {
        return &p->rules;
}

bool loaded_policy_is_special(const LoadedPolicy *p) {
        return p->special;
}

LoadedPolicy *host_network_deny_policy(HostNetwork *n) {
        return n->deny;
}

LoadedPolicy *host_network_internet_policy(HostNetwork *n) {
        return n->internet;
}

static int add_list(Policy *p, PolicyList list, char **rules, char error[static POLICY_ERROR_MAX]) {
        int r = 0;
        for (; r >= 0 && rules && *rules; rules++)
                r = policy_add(p, list, *rules, error);
        return r;
}

/* A reference in *ret, new or not. */
static int read_rules(HostNetwork *n, const SandboxPolicy *rules, LoadedPolicy **ret, char error[static POLICY_ERROR_MAX]) {
        _cleanup_(policy_freep) Policy *p = NULL;
        _cleanup_(policy_table_freep) PolicyTable *table = NULL;

        int r = policy_new(rules->internet ? POLICY_DEFAULT_INTERNET : POLICY_DEFAULT_DENY, &p);
        if (r >= 0)
                r = add_list(p, POLICY_ALLOW, rules->allow, error);
        if (r >= 0)
                r = add_list(p, POLICY_DENY, rules->deny, error);
        if (r >= 0)
                r = add_list(p, POLICY_INBOUND, rules->inbound, error);
        if (r >= 0)
                r = policy_compile(p, NULL, 0, &table, error);
        if (r < 0)
                return r;

        LoadedPolicy *l = find(n, rules);
        if (l) {
                *ret = loaded_policy_ref(l);
                return 0;
        }
        l = new0(LoadedPolicy, 1);
        *l = (LoadedPolicy) {
                .network = n, .special = policy_opens_special(p, NULL, 0), .n_refs = 1, .next = n->policies,
        };
        *ret = n->policies = l;
        return sandbox_policy_copy(rules, &l->rules);
}

static bool has_rule(const SandboxPolicy *rules, const char *rule) {
        for (char **l = rules->allow; l && *l; l++)
                if (streq(*l, rule))
                        return true;
        return false;
}

static void load_free(Load *l) {
        Load **at = &l->network->loads;
        while (*at != l)
                at = &(*at)->next;
        *at = l->next;
        sd_event_source_disable_unref(l->source);
        sandbox_policy_done(&l->rules);
        free(l);
}

static bool is_held(const SandboxPolicy *rules) {
        const char *file = getenv("FAKE_NETWORK_HOLD");
        return file && has_rule(rules, "slow.example") && access(file, F_OK) >= 0;
}

static int look_again(Load *l) {
        if (!l->told)
                fprintf(stderr, "network load waits\n");
        l->told = true;
        int r = sd_event_source_set_time_relative(l->source, LOOK_AGAIN_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(l->source, SD_EVENT_ONESHOT);
}

static int on_load(sd_event_source *source, uint64_t usec, void *userdata) {
        _cleanup_(loaded_policy_unrefp) LoadedPolicy *p = NULL;
        char error[POLICY_ERROR_MAX] = "";
        Load *l = userdata;

        if (is_held(&l->rules))
                return look_again(l);
        int r = has_rule(&l->rules, "lost.example") ? -ECONNRESET : read_rules(l->network, &l->rules, &p, error);
        fprintf(stderr, "network loads: %s\n", r < 0 ? strerror(-r) : "done");
        l->done(r, r == -ECONNRESET ? "cube-netd ended" : error, p, l->userdata);
        load_free(l);
        return 0;
}

int host_network_load_policy(HostNetwork *n, const SandboxPolicy *rules, PolicyLoadDone done, void *userdata) {
        LoadedPolicy *p = find(n, rules);

        if (p) {
                done(0, "", p, userdata);
                return 0;
        }
        Load *l = new0(Load, 1);
        *l = (Load) { .network = n, .done = done, .userdata = userdata, .next = n->loads };
        n->loads = l;
        (void) sandbox_policy_copy(rules, &l->rules);
        return sd_event_add_time_relative(n->manager->event, &l->source, CLOCK_MONOTONIC, USEC_PER_MSEC, 1, on_load, l);
}

void host_network_cancel(HostNetwork *n, void *userdata) {
        for (Load *l = n->loads, *next; l; l = next) {
                next = l->next;
                if (l->userdata == userdata)
                        load_free(l);
        }
}

void host_network_get_info(const HostNetwork *n, HostNetworkInfo *ret) {
        *ret = (HostNetworkInfo) {
                .net4 = "10.99.0.0/16", .net6 = "fd99::/64", .uplink = "eth0", .mtu = 1500, .n_free_slots = 8,
        };
}

typedef struct Setting {
        Sandbox *sandbox;
        LoadedPolicy *policy;
        SandboxDone done;
        void *userdata;
        sd_event_source *source;
        struct Setting *next;
} Setting;

static Setting *settings;

static void setting_free(Setting *x) {
        Setting **at = &settings;
        while (*at != x)
                at = &(*at)->next;
        *at = x->next;
        sd_event_source_disable_unref(x->source);
        loaded_policy_unref(x->policy);
        free(x);
}

static int on_set(sd_event_source *source, uint64_t usec, void *userdata) {
        static const sd_bus_error stuck = SD_BUS_ERROR_MAKE_CONST(BUS_ERROR_NO_RESOURCES, "The tables are full");
        Setting *x = userdata;
        Sandbox *s = x->sandbox;
        char *properties[] = { (char *) "NetworkPolicy", NULL };
        bool fails = has_rule(&x->policy->rules, "stuck.example");

        if (!fails) {
                loaded_policy_unref(s->policy);
                s->policy = loaded_policy_ref(x->policy);
                s->manager->hooks->sandbox_changed(s->manager, s, properties);
        }
        x->done(s, fails ? &stuck : NULL, x->userdata);
        setting_free(x);
        return 0;
}

int sandbox_set_policy(Sandbox *s, LoadedPolicy *policy, SandboxDone done, void *userdata, sd_bus_error *error) {
        Setting *x = new0(Setting, 1);

        *x = (Setting) {
                .sandbox = s, .policy = loaded_policy_ref(policy), .done = done, .userdata = userdata, .next = settings,
        };
        settings = x;
        return sd_event_add_time_relative(s->manager->event, &x->source, CLOCK_MONOTONIC, USEC_PER_MSEC, 1, on_set, x);
}

int fake_network_join(Sandbox *s, const SandboxSpec *spec) {
        HostNetwork *n = s->manager->network;
        char error[POLICY_ERROR_MAX];

        snprintf(s->address4, sizeof(s->address4), "10.99.0.%u", ++n->n_slots % 250 + 1);
        snprintf(s->address6, sizeof(s->address6), "fd99::%x", n->n_slots);
        s->net_limits = spec->net_limits;
        if (spec->policy) {
                s->policy = loaded_policy_ref(spec->policy);
                return 0;
        }
        return read_rules(n, &spec->template->policy, &s->policy, error);
}

void fake_network_leave(Sandbox *s) {
        static const sd_bus_error gone = SD_BUS_ERROR_MAKE_CONST(BUS_ERROR_GUEST_FAILED, "The sandbox ended meanwhile");

        for (Setting *x = settings, *next; x; x = next) {
                next = x->next;
                if (x->sandbox == s) {
                        x->done(s, &gone, x->userdata);
                        setting_free(x);
                }
        }
        s->policy = loaded_policy_unref(s->policy);
}

void fake_network_limit(Sandbox *s, const NetLimits *limits) {
        char *properties[] = { (char *) "NetworkBandwidthOutMax", (char *) "NetworkOpenConnectionsMax", NULL };

        if (limits->bytes_out > 0)
                s->net_limits.bytes_out = limits->bytes_out;
        if (limits->flows_open > 0)
                s->net_limits.flows_open = limits->flows_open;
        s->manager->hooks->sandbox_changed(s->manager, s, properties);
}

void audit_policy(Audit *a, const Sandbox *s, uid_t actor) {
        fprintf(stderr, "audit policy %s actor=%u default=%s\n", s->id, (unsigned) actor,
                s->policy->rules.internet ? "internet" : "deny");
}

int fake_network_new(Manager *m, HostNetwork **ret) {
        HostNetwork *n = new0(HostNetwork, 1);
        char error[POLICY_ERROR_MAX];

        n->manager = m;
        *ret = n;
        int r = read_rules(n, &(SandboxPolicy) {}, &n->deny, error);
        return r < 0 ? r : read_rules(n, &(SandboxPolicy) { .internet = true }, &n->internet, error);
}

void fake_network_free(HostNetwork *n) {
        while (n->loads)
                load_free(n->loads);
        loaded_policy_unref(n->deny);
        loaded_policy_unref(n->internet);
        free(n);
}
