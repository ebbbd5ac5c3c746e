/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "daemon/audit.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-turn.h"

int bus_actor(sd_bus_message *m, uid_t *ret, sd_bus_error *error) {
        return bus_senders_get(bus_front->senders, m, ret, error);
}

int bus_authorize(sd_bus_message *m, const BusAccess *access, uid_t *ret_actor, sd_bus_error *error) {
        uid_t actor;

        int r = bus_actor(m, &actor, error);
        if (r <= 0)
                return r;

        *ret_actor = actor;
        if (actor == 0 || (access->owner != BUS_OWNER_NONE && actor == access->owner))
                return 1;

        r = polkit_check(bus_front->polkit, m, actor, access->action, access->key, access->value, access->quiet,
                         error);
        if (r < 0 && !access->quiet && sd_bus_error_has_name(error, BUS_ERROR_ACCESS_DENIED))
                audit_denied(bus_front->manager->audit, actor, access->action, access->value);
        return r;
}

int bus_authorize_sandbox(sd_bus_message *m, const Sandbox *s, const char *action, uid_t *ret_actor,
                          sd_bus_error *error) {
        const BusAccess access = { .action = action, .owner = s->owner_uid, .key = "sandbox", .value = s->id };
        return bus_authorize(m, &access, ret_actor, error);
}

int bus_authorize_template(sd_bus_message *m, const Template *t, uid_t *ret_actor, sd_bus_error *error) {
        const BusAccess access = { .action = POLKIT_TEMPLATES, .owner = t->owner_uid, .key = "template", .value = t->id };
        return bus_authorize(m, &access, ret_actor, error);
}

void bus_again(sd_bus_message *m) {
        int r = sd_bus_message_rewind(m, 1);

        if (r >= 0)
                r = sd_bus_enqueue_for_read(bus_front->manager->bus, m);
        if (r < 0)
                bus_reply_error(m, NULL, r);
        polkit_release(bus_front->polkit, m);
        bus_turn_watch(m);
}

bool bus_template_visible(const Template *t, uid_t actor, const char *tenant) {
        if (t->public || (t->owner_uid == 0 && !*t->tenant) || (actor == 0 && !tenant))
                return true;
        return t->owner_uid == actor && (!tenant || streq(t->tenant, tenant));
}

int bus_find_template(uid_t actor, const char *tenant, const char *ref, Template **ret, sd_bus_error *error) {
        Template *t = template_store_find(bus_front->manager->templates, actor, tenant, ref);

        if (!t || !bus_template_visible(t, actor, tenant))
                return sd_bus_error_setf(error, BUS_ERROR_NO_SUCH_TEMPLATE,
                                         "No template '%s'; 'cubectl template list' shows what there is, "
                                         "'cubectl template build' makes one",
                                         ref);
        *ret = t;
        return 0;
}

const char *bus_template_name(const Template *t, char buf[static BUS_TEMPLATE_NAME_MAX]) {
        if (t->named)
                snprintf(buf, BUS_TEMPLATE_NAME_MAX, "%s:%s", t->name, t->tag);
        else
                *buf = 0;
        return buf;
}

int bus_property_uid(sd_bus *bus, const char *path, const char *interface, const char *property,
                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const uid_t *uid = userdata;
        return sd_bus_message_append(reply, "u", (uint32_t) *uid);
}

int bus_property_id(sd_bus *bus, const char *path, const char *interface, const char *property,
                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", (const char *) userdata);
}
