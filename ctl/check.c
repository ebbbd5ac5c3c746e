/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"
#include "ctl/pager.h"
#include "ctl/table.h"

static TextColor level_color(const char *level) {
        return streq(level, "ok") ? TEXT_GREEN : streq(level, "failed") ? TEXT_RED : TEXT_YELLOW;
}

static int fill(sd_bus_message *reply, Table *t, bool *ret_failed) {
        const char *name, *level, *finding, *advice;

        int r = sd_bus_message_enter_container(reply, 'a', "(ssss)");
        while (r >= 0 && (r = sd_bus_message_read(reply, "(ssss)", &name, &level, &finding, &advice)) > 0) {
                table_add(t, name);
                table_add(t, level);
                table_set_color(t, level_color(level));
                table_add(t, finding);
                table_add(t, advice);
                *ret_failed |= streq(level, "failed");
        }
        return r;
}

int verb_check(int argc, char **argv) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        static const char *const headers[] = { "CHECK", "RESULT", "FINDING", "WHAT TO DO", NULL };
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(table_freep) Table *t = NULL;
        bool failed = false;
        sd_bus *bus;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 0, 0);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;

        r = ctl_call(bus, "Checking this host", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "CheckHost", &reply, &error, NULL);
        t = table_new(headers);
        if (r >= 0)
                r = t ? fill(reply, t, &failed) : -ENOMEM;
        if (r < 0)
                return ctl_fail(r, &error, "check this host");
        pager_open();
        r = table_print(t, NULL, NULL);
        return r < 0 ? r : failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
