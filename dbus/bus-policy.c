/* SPDX-License-Identifier: Apache-2.0 */
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"
#include "dbus/bus-policy.h"
#include "dbus/bus-turn.h"

/* Messages that wait for policies: each costs cube-netd, which works on one after the other, some time. */
#define LOADS_MAX 64U
#define LOADS_PER_TENANT_MAX 16U

typedef struct Load {
        sd_bus_message *message;
        uid_t actor;
        char tenant[TENANT_NAME_MAX];
        bool starting, done;
        LoadedPolicy *policy;       /* in use until the message has had its turn */
        int result;
        char *text;
        sd_event_source *drop;      /* set once it waits no more */
        struct Load *next;
} Load;

static Load *loads = NULL;

static size_t text_bytes(char *const *l) {
        size_t bytes = 0;

        for (; l && *l; l++)
                bytes += strlen(*l);
        return bytes;
}

int bus_policy_check(const SandboxPolicy *p, sd_bus_error *error) {
        size_t n = sandbox_policy_count(p->allow) + sandbox_policy_count(p->deny) + sandbox_policy_count(p->inbound);
        size_t bytes = text_bytes(p->allow) + text_bytes(p->deny) + text_bytes(p->inbound);

        if (n > BUS_POLICY_RULES_MAX || bytes > BUS_POLICY_BYTES_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "A network policy has at most %u rules, with %u KiB of text", BUS_POLICY_RULES_MAX,
                                         BUS_POLICY_BYTES_MAX / 1024);
        return 0;
}

static int read_default(const char *s, bool *ret, sd_bus_error *error) {
        if (s && !streq(s, "deny") && !streq(s, "internet"))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "Option 'default' is '%s', but takes deny or internet", s);
        *ret = s && streq(s, "internet");
        return 0;
}

int bus_policy_read(sd_bus_message *m, BusPolicy *p, sd_bus_error *error) {
        const char *def = NULL;
        const BusOption options[] = {
                { "default", BUS_OPTION_STRING, &def, 0 },
                { "allow", BUS_OPTION_STRV, &p->rules.allow, 0 },
                { "deny", BUS_OPTION_STRV, &p->rules.deny, 0 },
                { "inbound", BUS_OPTION_STRV, &p->rules.inbound, 0 },
        };

        p->given = true;
        int r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r >= 0)
                r = read_default(def, &p->rules.internet, error);
        return r < 0 ? r : bus_policy_check(&p->rules, error);
}

int bus_policy_read_lists(sd_bus_message *m, SandboxPolicy *ret, sd_bus_error *error) {
        const BusOption options[] = {
                { "allow", BUS_OPTION_STRV, &ret->allow, 0 },
                { "deny", BUS_OPTION_STRV, &ret->deny, 0 },
                { "inbound", BUS_OPTION_STRV, &ret->inbound, 0 },
        };

        int r = bus_options_read(m, options, ELEMENTSOF(options), error);
        return r < 0 ? r : bus_policy_check(ret, error);
}

static int append_list(sd_bus_message *m, const char *name, char **l) {
        int r = sd_bus_message_open_container(m, 'e', "sv");

        if (r >= 0)
                r = sd_bus_message_append(m, "s", name);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "as");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "s");
        for (; r >= 0 && l && *l; l++) {
                _cleanup_free_ char *text = bus_text(*l, strlen(*l));
                r = text ? sd_bus_message_append(m, "s", text) : -ENOMEM;
        }
        for (size_t i = 0; r >= 0 && i < 3; i++)
                r = sd_bus_message_close_container(m);
        return r;
}

int bus_policy_append(sd_bus_message *m, const SandboxPolicy *p) {
        int r = sd_bus_message_open_container(m, 'a', "{sv}");

        if (r >= 0)
                r = sd_bus_message_append(m, "{sv}", "default", "s", p->internet ? "internet" : "deny");
        if (r >= 0)
                r = append_list(m, "allow", p->allow);
        if (r >= 0)
                r = append_list(m, "deny", p->deny);
        if (r >= 0)
                r = append_list(m, "inbound", p->inbound);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static void load_free(Load *l) {
        Load **at = &loads;
        while (*at && *at != l)
                at = &(*at)->next;
        if (*at)
                *at = l->next;

        sd_event_source_disable_unref(l->drop);
        loaded_policy_unref(l->policy);
        sd_bus_message_unref(l->message);
        free(l->text);
        free(l);
}

bool bus_policy_is_loading(const sd_bus_message *m) {
        for (const Load *l = loads; l; l = l->next)
                if (l->message == m && !l->done)
                        return true;
        return false;
}

static int on_drop(sd_event_source *source, void *userdata) {
        Load *l = userdata;

        /* A message may need several policies: the first is not let go while it waits for another one. */
        if (!bus_policy_is_loading(l->message))
                load_free(l);
        return 0;
}

static void arm_drops(sd_bus_message *m) {
        for (Load *l = loads; l; l = l->next)
                if (l->message == m && l->drop)
                        (void) sd_event_source_set_enabled(l->drop, SD_EVENT_ONESHOT);
}

static int set_fault(const Load *l, sd_bus_error *error) {
        /* The text may have part of a character that the caller wrote, cut off. */
        _cleanup_free_ char *text = bus_text(strempty(l->text), strlen(strempty(l->text)));

        if (l->result == -EINVAL || l->result == -E2BIG)
                return sd_bus_error_set(error, network_error_name(l->result), strempty(text));
        return sd_bus_error_setf(error, network_error_name(l->result),
                                 "The network policy can't be loaded: %s; 'cubectl check' tells about the network",
                                 isempty(text) ? strerror(-l->result) : text);
}

/* The message had to wait: it is answered, or comes again. */
static void finish(Load *l) {
        _cleanup_bus_error_ sd_bus_error error = SD_BUS_ERROR_NULL;

        if (l->result < 0) {
                (void) set_fault(l, &error);
                bus_reply_error(l->message, &error, l->result);
                polkit_release(bus_front->polkit, l->message);
                bus_turn_end(l->message);
                arm_drops(l->message);
                load_free(l);
                return;
        }

        bus_again(l->message);
        arm_drops(l->message);
        int r = sd_event_add_defer(bus_front->manager->event, &l->drop, on_drop, l);
        if (r >= 0)
                r = sd_event_source_set_priority(l->drop, SD_EVENT_PRIORITY_IDLE);
        if (r < 0)
                load_free(l);
}

static void on_loaded(int error, const char *message, LoadedPolicy *p, void *userdata) {
        Load *l = userdata;

        l->done = true;
        l->result = error;
        l->text = message ? strdup(message) : NULL;
        l->policy = error < 0 ? NULL : loaded_policy_ref(p);
        if (!l->starting)
                finish(l);
}

/* There always is for a message that had to wait already, and to deny everything, which is loaded in any case. */
static bool room_for_load(sd_bus_message *m, const BusPolicyFor *whom, const SandboxPolicy *rules) {
        size_t all = 0, of_tenant = 0;

        if (sandbox_policy_is_deny(rules))
                return true;
        for (const Load *l = loads; l; l = l->next) {
                if (l->message == m)
                        return true;
                all++;
                of_tenant += tenant_same(l->actor, l->tenant, whom->actor, whom->tenant);
        }
        return all < LOADS_MAX && of_tenant < LOADS_PER_TENANT_MAX;
}

static int load_new(sd_bus_message *m, const BusPolicyFor *whom, const SandboxPolicy *rules, Load **ret,
                    sd_bus_error *error) {
        if (!room_for_load(m, whom, rules))
                return sd_bus_error_set(error, BUS_ERROR_BUSY,
                                        "Too many network policies are being loaded already, try again");
        Load *l = new0(Load, 1);
        if (!l)
                return -ENOMEM;

        *l = (Load) { .message = sd_bus_message_ref(m), .actor = whom->actor, .starting = true, .next = loads };
        tenant_name_copy(l->tenant, whom->tenant);
        *ret = loads = l;
        return 0;
}

/* As bus_policy_load(), whoever asks. */
static int load(sd_bus_message *m, const BusPolicyFor *whom, const SandboxPolicy *rules, LoadedPolicy **ret,
                sd_bus_error *error) {
        Load *l = NULL;

        int r = load_new(m, whom, rules, &l, error);
        if (r < 0)
                return r;
        r = host_network_load_policy(bus_front->manager->network, rules, on_loaded, l);
        l->starting = false;
        if (r >= 0 && !l->done) {
                polkit_hold(bus_front->polkit, m);
                return 0;
        }

        if (!l->done)
                l->result = r;
        if (l->result < 0)
                r = set_fault(l, error);
        else {
                *ret = TAKE_PTR(l->policy);
                r = 1;
        }
        load_free(l);
        return r;
}

static int authorize_special(sd_bus_message *m, const BusPolicyFor *whom, sd_bus_error *error) {
        const BusAccess access = {
                .action = POLKIT_SPECIAL, .owner = BUS_OWNER_NONE, .key = whom->key, .value = whom->value,
        };
        const Config *c = &bus_front->manager->config;
        uid_t actor;

        if (config_users_have(&c->special_users, whom->actor) ||
            config_tenants_have(&c->special_tenants, whom->actor, whom->tenant))
                return 1;
        return bus_authorize(m, &access, &actor, error);
}

int bus_policy_load(sd_bus_message *m, const BusPolicyFor *whom, const SandboxPolicy *rules, LoadedPolicy **ret,
                    sd_bus_error *error) {
        _cleanup_(loaded_policy_unrefp) LoadedPolicy *p = NULL;

        int r = load(m, whom, rules, &p, error);
        if (r > 0 && loaded_policy_is_special(p))
                r = authorize_special(m, whom, error);
        if (r > 0)
                *ret = TAKE_PTR(p);
        return r;
}

void bus_policy_detach(Manager *m) {
        while (loads) {
                if (!loads->done)
                        host_network_cancel(m->network, loads);
                load_free(loads);
        }
}
