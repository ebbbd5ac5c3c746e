/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/clock.h"
#include "dbus/client.h"

#define TICK_USEC (200 * USEC_PER_MSEC)

int client_connect(const char *host, bool interactive, sd_bus **ret) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;

        assert(ret);

        int r = host ? sd_bus_open_system_remote(&bus, host) : sd_bus_open_system(&bus);
        if (r >= 0)
                r = sd_bus_set_allow_interactive_authorization(bus, interactive);
        /* Verbs go on with it after their loop. */
        if (r >= 0)
                r = sd_bus_set_close_on_exit(bus, 0);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(bus);
        return 0;
}

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        *(sd_bus_message **) userdata = sd_bus_message_ref(m);
        return 1;
}

int client_call(sd_bus *bus, sd_bus_message *call, ClientTick tick, void *userdata, sd_bus_message **ret_reply,
                sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_slot_unrefp) sd_bus_slot *slot = NULL;
        uint64_t start = now_usec();

        int r = sd_bus_call_async(bus, &slot, call, on_reply, &reply, UINT64_MAX);
        if (r < 0)
                return r;

        while (!reply) {
                r = sd_bus_process(bus, NULL);
                if (r < 0)
                        return r;
                if (r > 0)
                        continue;
                r = sd_bus_wait(bus, TICK_USEC);
                if (r < 0 && r != -EINTR)
                        return r;
                if (r == 0 && tick)
                        tick(userdata, now_usec() - start);
        }

        /* What libsystemd answers in our stead when the bus has closed the connection. */
        if (sd_bus_message_is_method_error(reply, SD_BUS_ERROR_NO_REPLY) && sd_bus_is_open(bus) <= 0)
                return -ENOTCONN;
        if (sd_bus_message_is_method_error(reply, NULL)) {
                r = sd_bus_error_copy(error, sd_bus_message_get_error(reply));
                return r < 0 ? r : -sd_bus_message_get_errno(reply);
        }
        if (ret_reply)
                *ret_reply = TAKE_PTR(reply);
        return 0;
}

static const struct {
        const char *name, *text;
} error_texts[] = {
        { SD_BUS_ERROR_SERVICE_UNKNOWN, "cubed is not running here (start it: systemctl start cubed)" },
        { SD_BUS_ERROR_NAME_HAS_NO_OWNER, "cubed is not running here (start it: systemctl start cubed)" },
        { "org.freedesktop.DBus.Error.Spawn.ChildExited", "cubed could not be started (see: journalctl -u cubed)" },
        { "org.freedesktop.systemd1.NoSuchUnit", "cubed is not running here (start it: systemctl start cubed)" },
        { "org.freedesktop.systemd1.UnitMasked", "cubed is masked (see: systemctl status cubed)" },
        { SD_BUS_ERROR_NO_REPLY, "cubed went away while it was working on that (see: journalctl -u cubed)" },
        { SD_BUS_ERROR_DISCONNECTED, "the connection to the bus is lost" },
        { SD_BUS_ERROR_UNKNOWN_METHOD, "the running cubed does not know this call (is it older than cubectl?)" },
};

const char *client_error_text(const sd_bus_error *error, int r) {
        if (sd_bus_error_is_set(error)) {
                for (size_t i = 0; i < ELEMENTSOF(error_texts); i++)
                        if (streq(error->name, error_texts[i].name))
                                return error_texts[i].text;
                return isempty(error->message) ? error->name : error->message;
        }

        switch (r) {
        case -ECONNRESET:
        case -ENOTCONN:
                return "the connection to the bus is lost";
        case -ETIMEDOUT:
                return "no answer in time";
        }
        return strerror(r < 0 ? -r : r);
}

const char *client_path(char buf[static CUBE_BUS_PATH_MAX], const char *prefix, const char *id) {
        snprintf(buf, CUBE_BUS_PATH_MAX, "%s/%s", prefix, id);
        return buf;
}
