/* SPDX-License-Identifier: Apache-2.0 */

/* Setting cube-netd up, and what follows from that; what it tells by itself.
 *
 * In this order, for each is a request behind the one before: the setup, slots that are kept, policies, running sandboxes'
 * policies, slots for those who wait, the pool. */

#include <stdio.h>

#include "daemon/audit.h"
#include "daemon/host-network-private.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "daemon/template.h"


static void set_up(HostNetwork *n);

static void tell_ready(HostNetwork *n, int error, const char *message) {
        for (ReadyWaiter *w; (w = n->ready_waiters);) {
                n->ready_waiters = w->next;
                w->ready(error, message, w->userdata);
                free(w);
        }
}

/* Its end may not have been seen yet. */
bool host_network_is_ready(const HostNetwork *n) {
        return n->ready && net_client_is_connected(n->manager->net);
}

int host_network_wait(HostNetwork *n, NetworkReady ready, void *userdata) {
        ReadyWaiter **end = &n->ready_waiters, *w;

        if (host_network_is_ready(n) || n->error) {
                ready(host_network_is_ready(n) ? 0 : -ENETDOWN, strempty(n->error), userdata);
                return 0;
        }
        w = new0(ReadyWaiter, 1);
        if (!w)
                return -ENOMEM;
        *w = (ReadyWaiter) { .ready = ready, .userdata = userdata };
        while (*end)
                end = &(*end)->next;
        *end = w;
        return 0;
}

static void cancel_ready(HostNetwork *n, void *userdata) {
        for (ReadyWaiter **i = &n->ready_waiters, *w; (w = *i);) {
                if (w->userdata != userdata) {
                        i = &w->next;
                        continue;
                }
                *i = w->next;
                free(w);
        }
}

void host_network_cancel(HostNetwork *n, void *userdata) {
        slot_pool_cancel(n, userdata);
        policies_cancel(n, userdata);
        cancel_ready(n, userdata);
        if (n->manager->net)
                net_client_cancel(n->manager->net, userdata);
}

/* After a setup. */

static void on_kept(int error, const NetResult *result, void *userdata) {
        if (error < 0 && !netd_is_away(error))
                log_warning("A network address of a paused sandbox is not kept for it: %s", result->message);
}

void host_network_keep_slot(HostNetwork *n, uint32_t slot, bool keep) {
        int r = n->ready && slot > 0 ? net_client_keep_slot(n->manager->net, slot, keep, on_kept, NULL) : 0;

        if (r < 0 && !netd_is_away(r))
                log_warning_errno(r, "Network slot %u can't be %s: %m", slot, keep ? "kept" : "let go");
}

static void keep_slots(HostNetwork *n) {
        Manager *m = n->manager;

        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (m->sandboxes[i]->priv->kept)
                        host_network_keep_slot(n, m->sandboxes[i]->slot, true);
}

static void on_template_policy(int error, const char *message, LoadedPolicy *p, void *userdata) {
        if (error < 0)
                log_warning("The network policy of a template can't be loaded: %s", message);
}

void host_network_add_template(HostNetwork *n, const Template *t) {
        int r = t->has_policy ? host_network_load_policy(n, &t->policy, on_template_policy, n) : 0;

        if (r < 0)
                log_warning_errno(r, "The network policy of template %s can't be loaded: %m", t->id);
}

/* Once: after that they are in the cache, or they are not used. */
static void load_templates(HostNetwork *n) {
        const TemplateStore *store = n->manager->templates;

        for (size_t i = 0; store && !n->templates_loaded && i < store->n_templates; i++)
                host_network_add_template(n, store->templates[i]);
        n->templates_loaded = true;
}

static void apply_policies(Sandbox *const *sandboxes, size_t n) {
        for (size_t i = 0; i < n; i++)
                sandbox_network_renew(sandboxes[i]);
}

/* Of all that there are, when slot is 0. */
static void check_links(HostNetwork *n, uint32_t slot) {
        const Manager *m = n->manager;

        for (size_t i = 0; i < m->n_sandboxes; i++)
                if (m->sandboxes[i]->slot != 0 && (slot == 0 || slot == m->sandboxes[i]->slot))
                        sandbox_check_links(m->sandboxes[i]);
        slot_pool_check(n, slot);
}

static void on_ready(HostNetwork *n, const NetResult *result) {
        Manager *m = n->manager;

        (void) snprintf(n->net4, sizeof(n->net4), "%s", result->net4);
        (void) snprintf(n->net6, sizeof(n->net6), "%s", result->net6);
        (void) snprintf(n->uplink, sizeof(n->uplink), "%s", result->uplink);
        n->mtu = result->mtu;
        n->ready = true;
        n->retry_usec = 0;
        free(TAKE_PTR(n->error));
        log_info("Sandboxes are in network %s%s%s, uplink %s", n->net4, *n->net6 ? " and " : "", n->net6,
                 *n->uplink ? n->uplink : "none yet");

        keep_slots(n);
        policies_start(n);
        apply_policies(m->sandboxes, m->n_sandboxes);
        apply_policies(m->builders, m->n_builders);
        check_links(n, 0);
        load_templates(n);
        tell_ready(n, 0, "");
        slot_pool_start(n);
}

/* Setup. */

static const char *advice(int error) {
        if (error == -EADDRINUSE)
                return "choose another network by Network4= or Network6= in cubed.conf and restart cubed";
        if (error == -EINVAL)
                return "correct section [Network] in cubed.conf and restart cubed";
        return "\"cubectl check\" may tell more, it is tried again";
}

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata) {
        set_up(userdata);
        return 0;
}

static void retry_later(HostNetwork *n) {
        n->retry = sd_event_source_disable_unref(n->retry);
        n->retry_usec = MIN(MAX(2 * n->retry_usec, NETWORK_RETRY_MIN_USEC), NETWORK_RETRY_MAX_USEC);
        int r = sd_event_add_time_relative(n->manager->event, &n->retry, CLOCK_MONOTONIC, n->retry_usec, 0, on_retry, n);
        if (r < 0)
                log_error_errno(r, "The sandbox network is not tried again: %m");
}

static void setup_failed(HostNetwork *n, int error, const char *message) {
        char text[NETWORK_TEXT_MAX * 2];
        bool news;

        (void) snprintf(text, sizeof(text), "This host has no network for sandboxes: %s; %s", message, advice(error));
        news = !n->error || !streq(n->error, text);
        free(n->error);
        n->error = strdup(text);
        if (news)
                log_error("%s", text);
        retry_later(n);
        slot_pool_fail(n, -ENETDOWN, text);
        policies_fail(n, -ENETDOWN, text);
        tell_ready(n, -ENETDOWN, text);
}

static void on_setup(int error, const NetResult *result, void *userdata) {
        HostNetwork *n = userdata;

        if (netd_is_away(error))
                return; /* there will be another one */
        if (error < 0)
                setup_failed(n, error, result->message);
        else
                on_ready(n, result);
}

NetLimits net_limits_over(const NetLimits *own, const NetLimits *base) {
        return (NetLimits) {
                .bytes_out = own->bytes_out ?: base->bytes_out,
                .bytes_in = own->bytes_in ?: base->bytes_in,
                .packets_out = own->packets_out ?: base->packets_out,
                .packets_in = own->packets_in ?: base->packets_in,
                .flows_new = own->flows_new ?: base->flows_new,
                .flows_open = own->flows_open ?: base->flows_open,
        };
}

bool net_limits_given(const NetLimits *l) {
        return l->bytes_out > 0 || l->bytes_in > 0 || l->packets_out > 0 || l->packets_in > 0 || l->flows_new > 0 || l->flows_open > 0;
}

static uint64_t none64(uint64_t v) {
        return v == UINT64_MAX ? 0 : v;
}

static uint32_t none32(uint32_t v) {
        return v == UINT32_MAX ? 0 : v;
}

NetLimits net_limits_resolve(const NetLimits *own, const NetLimits *configured) {
        NetLimits l = net_limits_over(own, configured);

        return (NetLimits) {
                .bytes_out = none64(l.bytes_out),
                .bytes_in = none64(l.bytes_in),
                .packets_out = none32(l.packets_out),
                .packets_in = none32(l.packets_in),
                .flows_new = none32(l.flows_new),
                .flows_open = none32(l.flows_open),
        };
}

static void set_up(HostNetwork *n) {
        const Config *c = &n->manager->config;
        NetSetup s = {
                .net4 = c->network4,
                .net6 = c->network6,
                .mark = c->network_mark,
                .audit_sec = (uint32_t) MIN(c->network_audit_usec / USEC_PER_SEC, UINT32_MAX),
                .ingress_uids = c->ingress_users.uid,
                .n_ingress_uids = c->ingress_users.n,
                .limits = net_limits_resolve(&(NetLimits) {}, &c->net_limits),
        };

        int r = net_client_setup(n->manager->net, &s, on_setup, n);
        if (r < 0 && !netd_is_away(r))
                setup_failed(n, r, strerror(-r));
}

void host_network_attached(HostNetwork *n) {
        net_client_cancel(n->manager->net, n);
        n->ready = n->pool.filling = false;
        n->retry = sd_event_source_disable_unref(n->retry);
        set_up(n);
}

/* Events. */

/* A paused one may remember a place that somebody else has meanwhile; what it was denied at last is told behind its pause. */
static Sandbox *find_by_slot(const Manager *m, uint32_t slot) {
        Sandbox *found = NULL;

        for (size_t i = 0; slot > 0 && i < m->n_sandboxes; i++)
                if (m->sandboxes[i]->slot == slot && (!found || sandbox_on_disk(found)))
                        found = m->sandboxes[i];
        return found;
}

static void uplink_changed(HostNetwork *n, const NetEventInfo *e) {
        bool other_mtu = e->mtu != n->mtu;

        if (*e->uplink)
                log_info("Sandboxes reach the world by %s now (MTU %u)", e->uplink, e->mtu);
        else
                log_warning("This host has no default route any more: sandboxes reach nobody beyond it");
        (void) snprintf(n->uplink, sizeof(n->uplink), "%s", e->uplink);
        n->mtu = e->mtu;
        /* Links are made for an MTU. */
        if (other_mtu)
                slot_pool_renew(n);
}

static void on_event(const NetEventInfo *e, void *userdata) {
        HostNetwork *n = userdata;
        const Sandbox *s;

        switch (e->kind) {
        case NET_DENIED:
                s = find_by_slot(n->manager, e->slot);
                if (s)
                        audit_network_denied(n->manager->audit, s, e);
                break;
        case NET_NAME_DENIED:
                s = find_by_slot(n->manager, e->slot);
                if (s)
                        audit_name_denied(n->manager->audit, s, e);
                break;
        case NET_UPLINK_CHANGED:
                uplink_changed(n, e);
                break;
        case NET_LINKS_GONE:
                check_links(n, e->slot);
                break;
        case NET_TABLE_RESTORED:
                log_warning("Somebody changed nftables table \"cubed\"; it has been put back");
                break;
        }
}

/* Life. */

int host_network_new(Manager *m, HostNetwork **ret) {
        _cleanup_(host_network_freep) HostNetwork *n = new0(HostNetwork, 1);
        if (!n)
                return -ENOMEM;

        n->manager = m;
        int r = policies_init(n);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(n);
        return 0;
}

void host_network_start(HostNetwork *n) {
        net_client_on_event(n->manager->net, on_event, n);
}

HostNetwork *host_network_free(HostNetwork *n) {
        if (!n)
                return NULL;
        if (n->manager->net) {
                net_client_on_event(n->manager->net, NULL, NULL);
                net_client_cancel(n->manager->net, n);
        }
        sd_event_source_disable_unref(n->retry);
        /* Those that are left belong to sandboxes that are gone, and have policies to let go. */
        tell_ready(n, -ECONNRESET, "cubed ends");
        slot_pool_done(n);
        policies_done(n);
        free(n->error);
        free(n);
        return NULL;
}

const char *host_network_failure(const HostNetwork *n) {
        return n->error;
}

void host_network_get_info(const HostNetwork *n, HostNetworkInfo *ret) {
        *ret = (HostNetworkInfo) {
                .net4 = n->net4,
                .net6 = n->net6,
                .uplink = n->uplink,
                .mtu = n->mtu,
                .error = n->error ?: n->ready ? NULL : "cube-netd has not answered yet",
                .n_free_slots = (uint32_t) n->pool.n,
        };
}
