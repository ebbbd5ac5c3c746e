/* SPDX-License-Identifier: Apache-2.0 */

/* A sandbox's place in the network: slot, addresses, policy.
 *
 * The slot comes from the pool, before there is a VMM, and lives as long as that: the VMM is given its tap and its
 * namespace, and nobody else keeps them. It is open from the moment its guest has taken a claim, by one write to a map; and
 * it is closed, with all connections of the host to it ended, before anybody is told that the sandbox has stopped, paused or
 * gone back in time. While it is closed nothing passes, whatever the policy says.
 *
 * cube-netd may be away at any time. What is in force stays in force then, and what is wanted waits for it. */

#include <endian.h>
#include <poll.h>

#include "daemon/audit.h"
#include "daemon/host-network.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"
#include "net/net-client.h"

#define GATEWAY4_TEXT "169.254.77.1"

static HostNetwork *network(const Sandbox *s) {
        return s->manager->network;
}

/* The slot. */

static int on_slot_source(sd_event_source *source, void *userdata) {
        Sandbox *s = userdata;

        s->priv->slot_source = sd_event_source_disable_unref(s->priv->slot_source);
        s->priv->slot_taken(s);
        return 0;
}

void sandbox_take_over_slot(Sandbox *s, NetworkSlot *slot) {
        struct SandboxPrivate *p = s->priv;
        bool moved = s->slot != 0 && s->slot != slot->slot;

        if (moved)
                log_notice("Sandbox %s: its address %s is not free any more, it is %s now", s->id, s->address4, slot->address4);
        if (moved && p->kept) {
                host_network_keep_slot(network(s), s->slot, false);
                host_network_keep_slot(network(s), slot->slot, true);
        }
        s->slot = slot->slot;
        memcpy(s->address4, slot->address4, sizeof(s->address4));
        memcpy(s->address6, slot->address6, sizeof(s->address6));
        p->mtu = slot->mtu;
        p->netns_fd = TAKE_FD(slot->netns_fd);
        p->tap_fd = TAKE_FD(slot->tap_fd);
        sandbox_changed(s, "NetworkAddress");
        sandbox_changed(s, "NetworkAddress6");
}

/* In a round of its own: what follows is a fork. */
static int go_on(Sandbox *s) {
        return sd_event_add_defer(s->manager->event, &s->priv->slot_source, on_slot_source, s);
}

static void on_slot(int error, const char *message, NetworkSlot *slot, void *userdata) {
        sandbox_give_slot(userdata, error, message, slot);
}

void sandbox_give_slot(Sandbox *s, int error, const char *message, NetworkSlot *slot) {
        if (!sandbox_in_making(s) || s->priv->exited || sd_bus_error_is_set(&s->priv->error))
                return;
        /* Networks were renumbered, or somebody else has it: better another address than no sandbox. */
        if ((error == -EINVAL || error == -EEXIST) && s->slot != 0 && !s->priv->slot_other) {
                s->priv->slot_other = true;
                error = host_network_take_slot(network(s), 0, on_slot, s);
                if (error >= 0)
                        return;
        }
        if (error < 0) {
                sandbox_failf(s, network_error_name(error), "Sandbox %s got no place in the network: %s", s->id, message);
                return;
        }
        sandbox_take_over_slot(s, slot);
        int r = go_on(s);
        if (r < 0)
                sandbox_failf(s, BUS_ERROR_NO_RESOURCES, "Sandbox %s could not be started: %s", s->id, strerror(-r));
}

int sandbox_take_slot(Sandbox *s, void (*taken)(Sandbox *s), sd_bus_error *error) {
        const char *failure = host_network_failure(network(s));

        s->priv->slot_taken = taken;
        s->priv->slot_other = false;
        int r = 0;
        switch (sandbox_leave_park(s)) {
        case SANDBOX_PLACE_THERE:
                r = go_on(s);
                break;
        case SANDBOX_PLACE_NONE:
                if (failure)
                        return sd_bus_error_setf(error, BUS_ERROR_HOST_UNSUPPORTED, "%s", failure);
                r = host_network_take_slot(network(s), s->slot, on_slot, s);
                break;
        case SANDBOX_PLACE_COMES:
                break;
        }
        return r < 0 ? sd_bus_error_set_errno(error, r) : 0;
}

void sandbox_adopt_network(Sandbox *s, const Sandbox *left) {
        s->slot = left->slot;
        memcpy(s->address4, left->address4, sizeof(s->address4));
        memcpy(s->address6, left->address6, sizeof(s->address6));
        s->priv->mtu = left->priv->mtu;
        s->priv->net_open = true;
}

/* What was asked for comes no more; descriptors that no VMM got go. */
void sandbox_drop_network(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        p->slot_source = sd_event_source_disable_unref(p->slot_source);
        p->net_open = p->net_opening = p->net_closing = p->net_limits_set = false;
        p->net_opened = NULL;
        p->net_closed = NULL;
        if (!network(s))
                return;
        if (p->net_lost && !p->kept)
                host_network_keep_slot(network(s), s->slot, false);
        p->net_lost = false;
        host_network_cancel(network(s), s);
        host_network_drop_slot(network(s), TAKE_FD(p->netns_fd), TAKE_FD(p->tap_fd));
}

static void put_address(TlvWriter *w, uint32_t family, uint32_t prefix, const uint8_t *address, const uint8_t *gateway, size_t size) {
        AgentNetwork n = { .family = htole32(family), .prefix = htole32(prefix), .gateway_mac = NET_GATEWAY_MAC };

        memcpy(n.address, address, size);
        memcpy(n.gateway, gateway, size);
        tlv_put(w, AGENT_TAG_NETWORK, &n, sizeof(n));
}

void sandbox_put_network(const Sandbox *s, TlvWriter *w) {
        static const uint8_t guest4[] = NET_INNER4(NET_INNER_GUEST), gateway4[] = NET_INNER4(NET_INNER_GATEWAY);
        static const uint8_t guest6[] = NET_INNER6(NET_INNER_GUEST), gateway6[] = NET_INNER6(NET_INNER_GATEWAY);

        if (s->slot == 0)
                return;
        put_address(w, 4, NET_INNER4_PREFIX, guest4, gateway4, sizeof(guest4));
        if (*s->address6)
                put_address(w, 6, NET_INNER6_PREFIX, guest6, gateway6, sizeof(guest6));
        if (s->priv->mtu > 0)
                tlv_put_u32(w, AGENT_TAG_MTU, s->priv->mtu);
        tlv_put_str(w, AGENT_TAG_NAMESERVER, GATEWAY4_TEXT);
}

/* Opening. */

static void open_go_on(Sandbox *s);

static void open_finish(Sandbox *s, const char *name, const char *message) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        void (*opened)(Sandbox *, const sd_bus_error *) = TAKE_PTR(s->priv->net_opened);

        s->priv->net_opening = false;
        s->priv->net_open = !name;
        s->priv->net_parked = s->priv->net_parked && name;
        if (name)
                (void) sd_bus_error_setf(&e, name, "The network of sandbox %s can't be opened: %s", s->id, message);
        if (opened)
                opened(s, name ? &e : NULL);
        else if (name)
                log_warning("%s", strempty(e.message));
}

static void on_ready(int error, const char *message, void *userdata) {
        Sandbox *s = userdata;

        if (!s->priv->net_opening)
                return;
        if (error < 0)
                open_finish(s, network_error_name(error), message);
        else
                open_go_on(s);
}

static void on_policy(int error, const char *message, LoadedPolicy *p, void *userdata) {
        on_ready(error, message, userdata);
}

static void on_limits(int error, const NetResult *result, void *userdata) {
        Sandbox *s = userdata;

        s->priv->net_limits_set = error >= 0;
        int r = netd_is_away(error) && s->priv->net_opening ? host_network_wait(network(s), on_ready, s) : error;
        if (r < 0 || error >= 0)
                on_ready(r, r == error ? result->message : strerror(-r), s);
}

static bool has_own_limits(const Sandbox *s) {
        return net_limits_given(&s->net_limits);
}

static int claim(Sandbox *s) {
        NetClient *net = s->manager->net;
        NetEntry before, entry = { .owner = s->owner_uid };

        if (!loaded_policy_get_entry(s->policy, &entry.policy, &entry.flags))
                return -EAGAIN;
        int r = net_client_get_entry(net, s->slot, &before);
        if (r < 0)
                return r;
        entry.generation = before.generation + 1;
        return net_client_claim(net, s->slot, &entry);
}

int sandbox_network_park(Sandbox *s) {
        NetClient *net = s->manager->net;
        NetEntry before, entry = { .policy = NET_POLICY_DENY, .flags = NET_ENTRY_PARKED, .owner = s->owner_uid };

        int r = net_client_get_entry(net, s->slot, &before);
        if (r < 0)
                return r;
        entry.generation = before.generation + 1;
        r = net_client_claim(net, s->slot, &entry);
        s->priv->net_parked = r >= 0;
        return r;
}

/* 1: open, 0: a callback goes on. */
static int open_step(Sandbox *s) {
        int r;

        if (has_own_limits(s) && !s->priv->net_limits_set) {
                NetLimits l = net_limits_resolve(&s->net_limits, &s->manager->config.net_limits);

                r = net_client_set_limits(s->manager->net, s->slot, &l, on_limits, s);
        } else {
                r = claim(s);
                if (r >= 0)
                        return 1;
        }
        if (r == -EAGAIN)
                return loaded_policy_load(s->policy, on_policy, s);
        return netd_is_away(r) ? host_network_wait(network(s), on_ready, s) : r;
}

static void open_go_on(Sandbox *s) {
        int r = open_step(s);

        if (r < 0)
                open_finish(s, network_error_name(r), strerror(-r));
        else if (r > 0)
                open_finish(s, NULL, NULL);
}

int sandbox_network_open(Sandbox *s, void (*opened)(Sandbox *s, const sd_bus_error *error)) {
        struct SandboxPrivate *p = s->priv;

        if (s->slot == 0 || p->net_open)
                return 1;
        p->net_opening = true;
        p->net_opened = opened;
        int r = open_step(s);
        if (r == 0)
                return 0;
        p->net_opening = false;
        p->net_opened = NULL;
        p->net_open = r > 0;
        p->net_parked = p->net_parked && r < 0;
        return r;
}

void sandbox_network_reopen(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        if (s->state != SANDBOX_RUNNING || *p->rollback_id || p->net_opening || p->net_closing)
                return;
        int r = sandbox_network_open(s, NULL);
        if (r < 0)
                log_warning_errno(r, "The network of sandbox %s can't be opened: %m", s->id);
}

/* cube-netd is another one: it knows no rules, only what is in force. */

static void on_renewed(int error, const NetResult *result, void *userdata) {
        const Sandbox *s = userdata;

        if (error < 0 && !netd_is_away(error) && error != -ENOENT)
                log_warning("Sandbox %s: its network policy can't be loaded again, the old tables stay in force: %s", s->id,
                            result->message);
}

void sandbox_network_renew(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;
        NetEntry entry;

        if (s->slot == 0)
                return;
        /* It could not be, when that was tried. */
        if (!p->net_open) {
                sandbox_network_reopen(s);
                return;
        }
        int r = net_client_get_entry(s->manager->net, s->slot, &entry);
        if (r < 0)
                return; /* its links are gone, its end is being told */
        /* A cubed before was about to open it again. */
        if (entry.flags & NET_ENTRY_CLOSED) {
                p->net_open = false;
                sandbox_network_reopen(s);
                return;
        }
        NetRules rules = sandbox_policy_net_rules(loaded_policy_rules(s->policy));
        r = net_client_set_policy(s->manager->net, s->slot, &rules, on_renewed, s);
        if (r < 0 && !netd_is_away(r))
                log_warning_errno(r, "Sandbox %s: its network policy can't be loaded again: %m", s->id);
}

/* Links. */

/* Those of one that ends go with its VMM, which may not have been told yet. */
static bool has_links_to_lose(const Sandbox *s) {
        struct pollfd process = { .fd = s->priv->process.pid_fd, .events = POLLIN };

        return s->state == SANDBOX_RUNNING && s->priv->net_open && poll(&process, 1, 0) == 0;
}

void sandbox_check_links(Sandbox *s) {
        bool parked = s->priv->park == PARK_PARKED;
        NetEntry entry;

        if ((!parked && !has_links_to_lose(s)) || net_client_get_entry(s->manager->net, s->slot, &entry) != -ENOENT)
                return;
        if (parked) {
                sandbox_park_anew(s);
                return;
        }
        if (!s->priv->net_lost)
                log_warning("Sandbox %s: somebody took its links away; it has no network until it has been paused and resumed", s->id);
        s->priv->net_lost = true;
        /* It goes by this number still. */
        host_network_keep_slot(network(s), s->slot, true);
}

/* Closing. */

static void on_closed(int error, const NetResult *result, void *userdata);

static void close_finish(Sandbox *s) {
        void (*closed)(Sandbox *) = TAKE_PTR(s->priv->net_closed);

        s->priv->net_closing = s->priv->net_close_again = false;
        if (s->priv->finish_waits)
                sandbox_schedule_finish(s);
        if (closed)
                closed(s);
}

/* Without cube-netd, which alone can end connections: what is open is judged anew, and nothing passes. */
static void shut(Sandbox *s) {
        NetEntry entry;

        if (net_client_get_entry(s->manager->net, s->slot, &entry) < 0)
                return;
        entry = (NetEntry) {
                .policy = NET_POLICY_DENY, .generation = entry.generation + 1, .flags = NET_ENTRY_CLOSED, .owner = UINT32_MAX,
        };
        int r = net_client_claim(s->manager->net, s->slot, &entry);
        if (r < 0)
                log_warning_errno(r, "The network of sandbox %s can't be closed: %m", s->id);
}

/* Nothing passes any more, but who is connected may not have heard of it. */
static void close_failed(Sandbox *s, const char *why) {
        shut(s);
        log_warning("Sandbox %s: connections of the host to it may hang for a while: %s", s->id, why);
        close_finish(s);
}

/* Who connects to one that is being paused and will be parked need not know that it was away. */
static int quiesce(Sandbox *s) {
        bool parks = s->priv->kept_as == SANDBOX_PAUSED && sandbox_parks(s);

        return (parks ? net_client_park : net_client_quiesce)(s->manager->net, s->slot, on_closed, s);
}

static void on_ready_to_close(int error, const char *message, void *userdata) {
        Sandbox *s = userdata;

        int r = error < 0 ? error : quiesce(s);
        if (r < 0)
                close_failed(s, error < 0 ? message : strerror(-r));
}

static void on_closed(int error, const NetResult *result, void *userdata) {
        Sandbox *s = userdata;

        if (netd_is_away(error))
                shut(s);
        /* Once more, and then nobody needs to wait for ever. */
        if (netd_is_away(error) && !s->priv->net_close_again) {
                s->priv->net_close_again = true;
                if (host_network_wait(network(s), on_ready_to_close, s) >= 0)
                        return;
        }
        if (error < 0)
                close_failed(s, result->message);
        else
                close_finish(s);
}

static void begin_close(Sandbox *s) {
        struct SandboxPrivate *p = s->priv;

        p->net_open = p->net_parked = false;
        p->net_closing = true;
        int r = quiesce(s);
        if (netd_is_away(r)) {
                shut(s);
                p->net_close_again = true;
                r = host_network_wait(network(s), on_ready_to_close, s);
        }
        if (r < 0)
                close_failed(s, strerror(-r));
}

bool sandbox_network_close(Sandbox *s, void (*closed)(Sandbox *s)) {
        struct SandboxPrivate *p = s->priv;

        /* What was about to be opened is not: its callbacks find that nobody wants it any more. */
        p->net_opening = false;
        p->net_opened = NULL;
        if (!p->net_closing && s->slot != 0 && (p->net_open || p->net_parked))
                begin_close(s);
        if (p->net_closing && closed)
                p->net_closed = closed;
        return p->net_closing;
}
