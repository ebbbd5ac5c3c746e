/* SPDX-License-Identifier: Apache-2.0 */

/* Policies as cubed and cube-netd share them: one object for all sandboxes with equal rules.
 *
 * An object is there as long as it is referenced, whether its tables are loaded or not; a load under way holds a reference
 * of its own. Those that nobody references any more stay loaded, up to a number, for the next sandbox with these
 * rules. Ids of tables are cube-netd's: when there is a new one, all in use are loaded again. */

#include "base/parse.h"
#include "daemon/host-network-private.h"
#include "daemon/log.h"

/* Without a user. */
#define UNUSED_MAX 64U

typedef struct LoadWaiter {
        PolicyLoadDone done;
        void *userdata;
        struct LoadWaiter *next;
} LoadWaiter;

struct LoadedPolicy {
        HostNetwork *network;      /* NULL: it goes before us */
        SandboxPolicy rules;
        uint64_t hash;             /* of rules: lists of thousands are compared only where they are the same */
        unsigned n_refs;
        uint64_t unused_since;     /* of policy_clock */
        bool loaded;
        bool loading;              /* asked for; a reference is held meanwhile */
        uint32_t id, flags;
        bool special;
        LoadWaiter *waiters;
        struct LoadedPolicy *next;
};

NetRules sandbox_policy_net_rules(const SandboxPolicy *p) {
        return (NetRules) {
                .internet = p->internet,
                .allow = (const char *const *) p->allow,
                .deny = (const char *const *) p->deny,
                .inbound = (const char *const *) p->inbound,
        };
}

static void policy_unlink(LoadedPolicy *p) {
        for (LoadedPolicy **i = &p->network->policies; *i; i = &(*i)->next)
                if (*i == p) {
                        *i = p->next;
                        return;
                }
}

static void policy_free(LoadedPolicy *p) {
        if (p->network) {
                policy_unlink(p);
                /* One that cube-netd does not get to know of goes when there is a new one. */
                if (p->loaded)
                        (void) net_client_drop_policy(p->network->manager->net, p->id, NULL, NULL);
        }
        sandbox_policy_done(&p->rules);
        free(p);
}

static LoadedPolicy *longest_unused(const HostNetwork *n, unsigned *ret_count) {
        LoadedPolicy *oldest = NULL;

        *ret_count = 0;
        for (LoadedPolicy *p = n->policies; p; p = p->next) {
                if (p->n_refs > 0)
                        continue;
                (*ret_count)++;
                if (!oldest || p->unused_since < oldest->unused_since)
                        oldest = p;
        }
        return oldest;
}

LoadedPolicy *loaded_policy_ref(LoadedPolicy *p) {
        p->n_refs++;
        return p;
}

LoadedPolicy *loaded_policy_unref(LoadedPolicy *p) {
        unsigned count;

        if (!p)
                return NULL;
        assert(p->n_refs > 0);
        if (--p->n_refs > 0)
                return NULL;
        if (!p->network || !p->loaded) {
                policy_free(p);
                return NULL;
        }
        p->unused_since = ++p->network->policy_clock;
        LoadedPolicy *oldest = longest_unused(p->network, &count);
        if (count > UNUSED_MAX)
                policy_free(oldest);
        return NULL;
}

const SandboxPolicy *loaded_policy_rules(const LoadedPolicy *p) {
        return &p->rules;
}

bool loaded_policy_is_special(const LoadedPolicy *p) {
        return p->special;
}

bool loaded_policy_get_entry(const LoadedPolicy *p, uint32_t *ret_policy, uint32_t *ret_flags) {
        if (!p->loaded)
                return false;
        *ret_policy = p->id;
        *ret_flags = p->flags;
        return true;
}

/* Loading. */

static void tell_waiters(LoadedPolicy *p, int error, const char *message) {
        for (LoadWaiter *w; (w = p->waiters);) {
                p->waiters = w->next;
                w->done(error, message, p, w->userdata);
                free(w);
        }
}

static void load_finish(LoadedPolicy *p, int error, const char *message) {
        p->loading = false;
        tell_waiters(p, error, message);
        loaded_policy_unref(p);
}

static void on_loaded(int error, const NetResult *result, void *userdata) {
        LoadedPolicy *p = userdata;

        if (netd_is_away(error))
                return; /* policies_start() comes */
        if (error >= 0) {
                p->loaded = true;
                p->id = result->policy;
                p->flags = result->flags;
                p->special = result->special;
        } else if (!p->waiters)
                log_warning("A network policy in use can't be loaded: %s", result->message);
        load_finish(p, error, result->message);
}

static int ask(LoadedPolicy *p) {
        NetRules rules = sandbox_policy_net_rules(&p->rules);
        int r = p->network->ready ? net_client_load_policy(p->network->manager->net, &rules, on_loaded, p) : -ENOTCONN;

        return netd_is_away(r) ? 0 : r;
}

static int start_load(LoadedPolicy *p) {
        if (p->loading)
                return 0;
        int r = ask(p);
        if (r < 0)
                return r;
        p->loading = true;
        loaded_policy_ref(p);
        return 0;
}

int loaded_policy_load(LoadedPolicy *p, PolicyLoadDone done, void *userdata) {
        HostNetwork *n = p->network;

        if (p->loaded || n->error) {
                done(p->loaded ? 0 : -ENETDOWN, p->loaded ? "" : n->error, p, userdata);
                return 0;
        }
        LoadWaiter **end = &p->waiters, *w = new0(LoadWaiter, 1);
        if (!w)
                return -ENOMEM;
        int r = start_load(p);
        if (r < 0) {
                free(w);
                return r;
        }
        *w = (LoadWaiter) { .done = done, .userdata = userdata };
        while (*end)
                end = &(*end)->next;
        *end = w;
        return 0;
}

static LoadedPolicy *find(const HostNetwork *n, const SandboxPolicy *rules, uint64_t hash) {
        for (LoadedPolicy *p = n->policies; p; p = p->next)
                if (p->hash == hash && sandbox_policy_equal(&p->rules, rules))
                        return p;
        return NULL;
}

int host_network_get_policy(HostNetwork *n, const SandboxPolicy *rules, LoadedPolicy **ret) {
        uint64_t hash = sandbox_policy_hash(rules);
        LoadedPolicy *p = find(n, rules, hash);

        if (!p) {
                p = new0(LoadedPolicy, 1);
                if (!p)
                        return -ENOMEM;
                if (sandbox_policy_copy(rules, &p->rules) < 0) {
                        free(p);
                        return -ENOMEM;
                }
                p->network = n;
                p->hash = hash;
                p->next = n->policies;
                n->policies = p;
        }
        *ret = loaded_policy_ref(p);
        return 0;
}

int host_network_load_policy(HostNetwork *n, const SandboxPolicy *rules, PolicyLoadDone done, void *userdata) {
        _cleanup_(loaded_policy_unrefp) LoadedPolicy *p = NULL;

        int r = host_network_get_policy(n, rules, &p);
        return r < 0 ? r : loaded_policy_load(p, done, userdata);
}

LoadedPolicy *host_network_deny_policy(HostNetwork *n) {
        return n->deny;
}

LoadedPolicy *host_network_internet_policy(HostNetwork *n) {
        return n->internet;
}

int policies_init(HostNetwork *n) {
        int r = host_network_get_policy(n, &SANDBOX_POLICY_INIT, &n->deny);

        return r < 0 ? r : host_network_get_policy(n, &(SandboxPolicy) { .internet = true }, &n->internet);
}

/* Ids of a cube-netd that is no more; nobody misses what nobody uses. */
static void forget_ids(HostNetwork *n) {
        LoadedPolicy *next;

        for (LoadedPolicy *p = n->policies; p; p = next) {
                next = p->next;
                p->loaded = false;
                if (p->n_refs == 0)
                        policy_free(p);
        }
}

void policies_start(HostNetwork *n) {
        forget_ids(n);
        for (LoadedPolicy *p = n->policies; p; p = p->next) {
                bool again = p->loading;
                int r = again ? ask(p) : start_load(p);

                if (r < 0)
                        log_warning_errno(r, "A network policy in use can't be loaded: %m");
        }
}

static LoadedPolicy *find_loading(const HostNetwork *n) {
        for (LoadedPolicy *p = n->policies; p; p = p->next)
                if (p->loading)
                        return p;
        return NULL;
}

void policies_fail(HostNetwork *n, int error, const char *message) {
        for (LoadedPolicy *p; (p = find_loading(n));)
                load_finish(p, error, message);
}

void policies_cancel(HostNetwork *n, void *userdata) {
        for (LoadedPolicy *p = n->policies; p; p = p->next)
                for (LoadWaiter **i = &p->waiters, *w; (w = *i);) {
                        if (w->userdata != userdata) {
                                i = &w->next;
                                continue;
                        }
                        *i = w->next;
                        free(w);
                }
}

static void abandon(LoadedPolicy *p) {
        if (p->loading)
                net_client_cancel(p->network->manager->net, p);
        for (LoadWaiter *w; (w = p->waiters);) {
                p->waiters = w->next;
                free(w);
        }
        p->loaded = false;
        p->network = NULL;
        p->n_refs -= p->loading;
        p->loading = false;
}

void policies_done(HostNetwork *n) {
        LoadedPolicy *p;

        n->deny = loaded_policy_unref(n->deny);
        n->internet = loaded_policy_unref(n->internet);
        while ((p = n->policies)) {
                n->policies = p->next;
                abandon(p);
                if (p->n_refs == 0)
                        policy_free(p);
        }
}
