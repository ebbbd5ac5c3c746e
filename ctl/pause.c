/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"

enum {
        OPTION_NO_MEMORY = CTL_OPTION_VERB,
};

static const struct option options[] = {
        CTL_GLOBAL_OPTIONS,
        { "no-memory", no_argument, NULL, OPTION_NO_MEMORY },
        {},
};
static int parse(int argc, char **argv, bool *ret_memory) {
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = 0;
                if (c == OPTION_NO_MEMORY)
                        *ret_memory = false;
                else
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, -1);
        for (int i = optind; r >= 0 && i < argc; i++)
                r = ctl_check_id(argv[i]);
        return r;
}

static int call(sd_bus *bus, const char *id, const char *method, const char *doing, bool memory, sd_bus_error *error) {
        if (memory)
                return ctl_call_sandbox(bus, doing, id, method, NULL, error, "a{sv}", 0);
        return ctl_call_sandbox(bus, doing, id, method, NULL, error, "a{sv}", 1, "memory", "b", 0);
}

static int call_each(char **ids, const char *method, const char *doing, const char *what, bool memory) {
        int result = EXIT_SUCCESS;
        sd_bus *bus;

        int r = ctl_connect(&bus);
        if (r < 0)
                return r;
        for (; *ids; ids++) {
                _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
                r = call(bus, *ids, method, doing, memory, &error);
                if (r < 0) {
                        ctl_fail(r, &error, "%s sandbox %s", what, *ids);
                        result = EXIT_FAILURE;
                }
        }
        return result;
}

int verb_pause(int argc, char **argv) {
        bool memory = true;

        int r = parse(argc, argv, &memory);
        if (r < 0)
                return r;
        return call_each(argv + optind, "Pause", "Pausing", "pause", memory);
}

int verb_resume(int argc, char **argv) {
        bool memory = true;

        int r = parse(argc, argv, &memory);
        if (r < 0)
                return r;
        return call_each(argv + optind, "Resume", "Resuming", "resume", memory);
}
