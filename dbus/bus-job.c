/* SPDX-License-Identifier: Apache-2.0 */
#include "dbus/bus-objects.h"

static int authorize_job(sd_bus_message *m, const Job *j, sd_bus_error *error) {
        const BusAccess access = { .action = POLKIT_TEMPLATES, .owner = j->owner_uid, .key = "job", .value = j->id };
        uid_t actor;

        return bus_authorize(m, &access, &actor, error);
}

static int method_open_log(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_close_ int fd = -EBADF;
        Job *j = userdata;

        int r = authorize_job(m, j, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = job_open_log(j, &fd, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, "h", fd);
}

static int method_cancel(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Job *j = userdata;

        int r = authorize_job(m, j, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = job_cancel(j, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, NULL);
}

static int property_get_state(sd_bus *bus, const char *path, const char *interface, const char *property,
                              sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Job *j = userdata;
        return sd_bus_message_append(reply, "s", job_state_to_string(j->state));
}

/* What tools printed may be in there. */
static int property_get_error(sd_bus *bus, const char *path, const char *interface, const char *property,
                              sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const char *message = strempty(*(char **) userdata);
        _cleanup_free_ char *text = bus_text(message, strlen(message));
        if (!text)
                return -ENOMEM;
        return sd_bus_message_append(reply, "s", text);
}

const sd_bus_vtable bus_job_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD_WITH_ARGS("OpenLog", SD_BUS_NO_ARGS, SD_BUS_RESULT("h", log), method_open_log,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Cancel", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, method_cancel, SD_BUS_VTABLE_UNPRIVILEGED),

        SD_BUS_PROPERTY("Id", "s", bus_property_id, offsetof(Job, id), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Kind", "s", NULL, offsetof(Job, kind), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Subject", "s", NULL, offsetof(Job, subject), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Owner", "u", bus_property_uid, offsetof(Job, owner_uid), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Tenant", "s", bus_property_id, offsetof(Job, tenant), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("State", "s", property_get_state, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Step", "s", NULL, offsetof(Job, step), SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Progress", "u", NULL, offsetof(Job, progress), SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("BuildStep", "u", NULL, offsetof(Job, build_step), SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("CachedSteps", "u", NULL, offsetof(Job, cached_steps), SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Template", "s", NULL, offsetof(Job, result), SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("ErrorName", "s", NULL, offsetof(Job, error_name), SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Error", "s", property_get_error, offsetof(Job, error_message),
                        SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("CreatedTimestamp", "t", NULL, offsetof(Job, created_usec), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("FinishedTimestamp", "t", NULL, offsetof(Job, finished_usec),
                        SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_VTABLE_END
};
