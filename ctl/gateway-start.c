/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "ctl/gateway-start.h"
#include "dbus/client.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define UNIT_PATH "/org/freedesktop/systemd1/unit/cube_2dgateway_2eservice"
#define DBUS "org.freedesktop.DBus"
#define LOOK_USEC (100 * USEC_PER_MSEC)
/* So often it is found failed before that counts, where nobody seems to start it: it failed for another caller, and for as long
 * as the bus waits for that one's sake it asks for no further start. */
#define LOOKS_AT_OLD 10U

/* Of one start of the unit; all 0: none, or that is not known. */
typedef struct Invocation {
        uint8_t id[16];
} Invocation;

static Invocation read_invocation(sd_bus *bus) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        Invocation i = {};
        const void *id;
        size_t size;

        if (sd_bus_get_property(bus, SYSTEMD, UNIT_PATH, SYSTEMD ".Unit", "InvocationID", NULL, &m, "ay") >= 0 &&
            sd_bus_message_read_array(m, 'y', &id, &size) >= 0 && size == sizeof(i.id))
                memcpy(i.id, id, size);
        return i;
}

static bool has_failed(sd_bus *bus, const Invocation *before, unsigned n_looks) {
        _cleanup_free_ char *state = NULL;
        const Invocation now = read_invocation(bus);

        return (memcmp(&now, before, sizeof(now)) != 0 || n_looks >= LOOKS_AT_OLD) &&
               sd_bus_get_property_string(bus, SYSTEMD, UNIT_PATH, SYSTEMD ".Unit", "ActiveState", NULL, &state) >= 0 &&
               streq(state, "failed");
}

static int is_there(sd_bus *bus, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        int there;

        int r = sd_bus_call_method(bus, DBUS, "/org/freedesktop/DBus", DBUS, "NameHasOwner", error, &reply, "s", GATEWAY_BUS_NAME);
        if (r >= 0)
                r = sd_bus_message_read(reply, "b", &there);
        return r < 0 ? r : there;
}

static int on_started(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        *(sd_bus_message **) userdata = sd_bus_message_ref(m);
        return 1;
}

static int wait_for_it(sd_bus *bus, sd_bus_message **reply, const Invocation *before, char **ret_why) {
        for (unsigned n_looks = 0; !*reply;) {
                int r = sd_bus_process(bus, NULL);
                if (r == 0)
                        r = sd_bus_wait(bus, LOOK_USEC);
                if (r < 0 && r != -EINTR)
                        return r;
                if (r == 0 && has_failed(bus, before, ++n_looks)) {
                        (void) sd_bus_get_property_string(bus, SYSTEMD, UNIT_PATH, SYSTEMD ".Service", "StatusText", NULL, ret_why);
                        return -EIO;
                }
        }
        return 0;
}

int gateway_start(sd_bus *bus, char **ret_why, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_slot_unrefp) sd_bus_slot *slot = NULL;

        *ret_why = NULL;
        int r = is_there(bus, error);
        if (r != 0)
                return r < 0 ? r : 0;
        const Invocation before = read_invocation(bus);
        /* Whoever may not do that leaves it to the bus. */
        if (geteuid() == 0)
                (void) sd_bus_call_method(bus, SYSTEMD, "/org/freedesktop/systemd1", SYSTEMD ".Manager", "StartUnit", NULL, NULL, "ss",
                                          "cube-gateway.service", "replace");
        r = sd_bus_call_method_async(bus, &slot, DBUS, "/org/freedesktop/DBus", DBUS, "StartServiceByName", on_started, &reply, "su",
                                     GATEWAY_BUS_NAME, 0);
        if (r >= 0)
                r = wait_for_it(bus, &reply, &before, ret_why);
        if (r >= 0 && sd_bus_message_is_method_error(reply, NULL)) {
                (void) sd_bus_error_copy(error, sd_bus_message_get_error(reply));
                r = -sd_bus_message_get_errno(reply);
        }
        return r < 0 ? r : 0;
}
