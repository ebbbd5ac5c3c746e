/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/log-control.h"
#include "daemon/log.h"
#include "dbus/bus-errors.h"

static const char *const levels[] = { "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug" };

static int property_get_level(sd_bus *bus, const char *path, const char *interface, const char *property,
                              sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", levels[log_get_max_level()]);
}

static int property_set_level(sd_bus *bus, const char *path, const char *interface, const char *property,
                              sd_bus_message *value, void *userdata, sd_bus_error *error) {
        const char *s;

        int r = sd_bus_message_read(value, "s", &s);
        if (r < 0)
                return r;
        for (unsigned i = 0; i < ELEMENTSOF(levels); i++)
                if (streq(levels[i], s)) {
                        log_set_max_level((int) i);
                        return 0;
                }
        return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "Log level '%s' is not known", s);
}

static int property_get_target(sd_bus *bus, const char *path, const char *interface, const char *property,
                               sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", "console");
}

static int property_set_target(sd_bus *bus, const char *path, const char *interface, const char *property,
                               sd_bus_message *value, void *userdata, sd_bus_error *error) {
        return sd_bus_error_setf(error, SD_BUS_ERROR_NOT_SUPPORTED, "cubed logs to its standard error only");
}

static int property_get_identifier(sd_bus *bus, const char *path, const char *interface, const char *property,
                                   sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", "cubed");
}

/* Properties without SD_BUS_VTABLE_UNPRIVILEGED: sd-bus lets only root set them. */
static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_WRITABLE_PROPERTY("LogLevel", "s", property_get_level, property_set_level, 0, 0),
        SD_BUS_WRITABLE_PROPERTY("LogTarget", "s", property_get_target, property_set_target, 0, 0),
        SD_BUS_PROPERTY("SyslogIdentifier", "s", property_get_identifier, 0, 0),
        SD_BUS_VTABLE_END,
};

int log_control_attach(sd_bus *bus) {
        int r = sd_bus_add_object_vtable(bus, NULL, "/org/freedesktop/LogControl1", "org.freedesktop.LogControl1", vtable, NULL);

        return r < 0 ? log_error_errno(r, "Can't offer LogControl1: %m") : 0;
}
