/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "daemon/audit.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-tenant.h"

int bus_tenant_check(uid_t actor, const char *tenant, sd_bus_error *error) {
        const Manager *m = bus_front->manager;

        if (!tenant)
                return 0;
        if (!config_users_have(&m->config.delegates, actor)) {
                char object[sizeof("tenant:") + TENANT_NAME_MAX];

                (void) snprintf(object, sizeof(object), "tenant:%s", tenant);
                audit_denied(m->audit, actor, "tenant", object);
                return sd_bus_error_setf(error, BUS_ERROR_ACCESS_DENIED,
                                         "Access denied: option 'tenant' is for the users that DelegateTo= of cubed.conf names, "
                                         "and uid %u is none of them", (unsigned) actor);
        }
        if (!tenant_name_valid(tenant))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "Option 'tenant' is no name of a tenant: letters, digits and . _ -, the first one a "
                                         "letter or digit, %u at most", TENANT_NAME_MAX - 1);
        return 0;
}

int bus_tenant_check_sandbox(uid_t actor, const char *tenant, const Sandbox *s, sd_bus_error *error) {
        int r = bus_tenant_check(actor, tenant, error);

        if (r < 0 || !tenant || tenant_same(actor, tenant, s->owner_uid, s->tenant))
                return r;
        return sd_bus_error_setf(error, BUS_ERROR_NO_SUCH_SANDBOX, "Tenant %s has no sandbox '%s'", tenant, s->id);
}

const char *bus_tenant_scope(uid_t actor, const char *tenant) {
        return actor == 0 ? tenant : strempty(tenant);
}

const char *bus_tenant_of(const Sandbox *s, uid_t actor) {
        return actor == s->owner_uid ? s->tenant : NULL;
}
