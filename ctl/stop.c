/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ctl/ctl.h"

static int end_each(int argc, char **argv, const char *method, const char *doing, const char *what) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        int c, r, result = EXIT_SUCCESS;
        sd_bus *bus;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, -1);
        for (int i = optind; r >= 0 && i < argc; i++)
                r = ctl_check_id(argv[i]);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;

        for (int i = optind; i < argc; i++) {
                _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
                r = ctl_call_sandbox(bus, doing, argv[i], method, NULL, &error, NULL);
                if (r < 0) {
                        ctl_fail(r, &error, "%s sandbox %s", what, argv[i]);
                        result = EXIT_FAILURE;
                }
        }
        return result;
}

int verb_stop(int argc, char **argv) {
        return end_each(argc, argv, "Stop", "Stopping", "stop");
}

int verb_kill(int argc, char **argv) {
        return end_each(argc, argv, "Kill", "Ending", "end");
}
