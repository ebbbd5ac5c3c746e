/* SPDX-License-Identifier: Apache-2.0 */
#include "dbus/bus-polkit.h"
#include "dbus/bus-sender.h"
#include "gateway/bus-keys.h"
#include "gateway/log.h"

#define ACTION POLKIT_ACTION("manage-keys")
#define NO_SUCH_KEY GATEWAY_BUS_NAME ".Error.NoSuchKey"
#define KEYS_UNREADABLE GATEWAY_BUS_NAME ".Error.KeysUnreadable"

struct BusKeys {
        Gateway *gateway;
        BusSenders *senders;
        Polkit *polkit;
        sd_bus_slot *object, *match;
};

/* 1: allowed, and there are keys; 0: the message comes again. */
static int authorize(BusKeys *b, sd_bus_message *m, uid_t *ret_actor, sd_bus_error *error) {
        int r = bus_senders_get(b->senders, m, ret_actor, error);

        if (r > 0 && *ret_actor != 0)
                r = polkit_check(b->polkit, m, *ret_actor, ACTION, NULL, NULL, false, error);
        if (r > 0 && !b->gateway->keys)
                return sd_bus_error_set(error, KEYS_UNREADABLE, b->gateway->keys_error);
        return r;
}

/* {tenant s} */
static int read_tenant(sd_bus_message *m, const char **ret, sd_bus_error *error) {
        const char *name;

        int r = sd_bus_message_enter_container(m, 'a', "{sv}");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = sd_bus_message_read_basic(m, 's', &name);
                if (r >= 0 && !streq(name, "tenant"))
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Unknown option '%s': a key has a tenant",
                                                 name);
                if (r >= 0)
                        r = sd_bus_message_read(m, "v", "s", ret);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int set_create_error(sd_bus_error *error, int r, const char *tenant) {
        if (r == -EINVAL && tenant && !tenant_valid(tenant))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "'%s' is no name of a tenant: a small letter, then small letters and digits, %u at most",
                                         tenant, TENANT_MAX - 1);
        if (r == -EINVAL)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "A key's name has 1 to %u bytes, and no control characters", KEY_NAME_MAX);
        if (r == -E2BIG)
                return sd_bus_error_setf(error, BUS_ERROR_QUOTA_EXCEEDED, "There are %u keys; revoke one first", KEYS_MAX);
        return sd_bus_error_set_errnof(error, r, "The keys could not be written to disk: %m");
}

static int method_create(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const char *name, *tenant = NULL;
        char secret[KEY_SECRET_SIZE];
        BusKeys *b = userdata;
        const Key *key;
        uid_t actor;

        int r = authorize(b, m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "s", &name);
        if (r >= 0)
                r = read_tenant(m, &tenant, error);
        if (r < 0)
                return r;
        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_sensitive(reply);
        if (r < 0)
                return r;

        r = keys_create(b->gateway->keys, name, tenant, secret, &key);
        if (r < 0)
                return set_create_error(error, r, tenant);
        audit_key("created", key->id, key->tenant, key->name, actor);
        r = sd_bus_message_append(reply, "ss", key->id, secret);
        explicit_bzero(secret, sizeof(secret));
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

static int method_list(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        BusKeys *b = userdata;
        uid_t actor;

        int r = authorize(b, m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(" GATEWAY_BUS_KEY ")");
        for (size_t i = 0; r >= 0 && i < b->gateway->keys->n; i++) {
                const Key *k = b->gateway->keys->keys[i];
                r = sd_bus_message_append(reply, "(" GATEWAY_BUS_KEY ")", k->id, k->name, k->tenant, k->created_usec);
        }
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}

static int method_revoke(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        BusKeys *b = userdata;
        const char *id;
        uid_t actor;
        Key *key;

        int r = authorize(b, m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "s", &id);
        if (r < 0)
                return r;
        r = keys_revoke(b->gateway->keys, id, &key);
        if (r == -ENOENT)
                return sd_bus_error_setf(error, NO_SUCH_KEY, "There is no key %s; 'cubectl apikey list' shows those there are",
                                         id);
        if (r < 0)
                return sd_bus_error_set_errnof(error, r, "The keys could not be written to disk, it is still valid: %m");
        audit_key("revoked", key->id, key->tenant, key->name, actor);
        key_free(key);
        return sd_bus_reply_method_return(m, NULL);
}

static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD_WITH_ARGS("CreateKey", SD_BUS_ARGS("s", name, "a{sv}", options), SD_BUS_RESULT("s", id, "s", key),
                                method_create, SD_BUS_VTABLE_UNPRIVILEGED|SD_BUS_VTABLE_SENSITIVE),
        SD_BUS_METHOD_WITH_ARGS("ListKeys", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(" GATEWAY_BUS_KEY ")", keys), method_list,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("RevokeKey", SD_BUS_ARGS("s", id), SD_BUS_NO_RESULT, method_revoke,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END,
};

static int on_name_owner(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name, *before, *after;
        BusKeys *b = userdata;

        if (sd_bus_message_read(m, "sss", &name, &before, &after) < 0 || name[0] != ':' || *after)
                return 0;
        bus_senders_gone(b->senders, name);
        polkit_client_gone(b->polkit, name);
        return 0;
}

int bus_keys_new(Gateway *g, BusKeys **ret) {
        BusKeys *b = new0(BusKeys, 1);
        if (!b)
                return -ENOMEM;

        b->gateway = g;
        int r = bus_senders_new(g->bus, &b->senders);
        if (r >= 0)
                r = polkit_new(g->bus, g->event, &b->polkit);
        if (r >= 0)
                r = sd_bus_add_object_vtable(g->bus, &b->object, GATEWAY_BUS_PATH, GATEWAY_BUS_NAME, vtable, b);
        if (r >= 0)
                r = sd_bus_match_signal(g->bus, &b->match, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                        "org.freedesktop.DBus", "NameOwnerChanged", on_name_owner, b);
        if (r >= 0)
                r = sd_bus_request_name(g->bus, GATEWAY_BUS_NAME, 0);
        if (r < 0) {
                bus_keys_free(b);
                return r;
        }
        *ret = b;
        return 0;
}

BusKeys *bus_keys_free(BusKeys *b) {
        if (!b)
                return NULL;

        sd_bus_slot_unref(b->object);
        sd_bus_slot_unref(b->match);
        polkit_free(b->polkit);
        bus_senders_free(b->senders);
        free(b);
        return NULL;
}
