/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"
#include "ctl/limit-options.h"

static int call_set_limits(sd_bus *bus, const char *id, const LimitOptions *o, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;
        char path[CUBE_BUS_PATH_MAX];

        int r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, id),
                                               CUBE_BUS_SANDBOX, "SetLimits");
        if (r >= 0)
                r = sd_bus_message_open_container(call, 'a', "{sv}");
        if (r >= 0)
                r = limit_options_append(call, o);
        if (r >= 0)
                r = sd_bus_message_close_container(call);
        return r < 0 ? r : ctl_call_message(bus, "Waiting for the guest", call, NULL, error);
}

int verb_limit(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                LIMIT_OPTIONS,
                {},
        };
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        LimitOptions o = {};
        bool given = false;
        sd_bus *bus;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = limit_option(&o, c);
                given |= r > 0;
                if (r == 0)
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, 1);
        if (r >= 0)
                r = ctl_check_id(argv[optind]);
        if (r >= 0 && !given)
                r = ctl_usage("'limit' needs a limit to change, as --memory=1G or --bandwidth-out=10M.");
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;
        r = call_set_limits(bus, argv[optind], &o, &error);
        return r < 0 ? ctl_fail(r, &error, "limit sandbox %s", argv[optind]) : 0;
}
