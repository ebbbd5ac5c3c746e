/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"
#include "ctl/pager.h"
#include "ctl/table.h"

static TextColor state_color(const char *state) {
        if (streq(state, "running"))
                return TEXT_GREEN;
        if (streq(state, "paused"))
                return TEXT_YELLOW;
        return streq(state, "failed") ? TEXT_RED : TEXT_NORMAL;
}

static int fill(sd_bus_message *reply, Table *t) {
        const char *id, *state, *template;
        uint64_t created;
        uint32_t uid;

        int r = sd_bus_message_enter_container(reply, 'a', "(ssusto)");
        while (r >= 0 && (r = sd_bus_message_read(reply, "(ssusto)", &id, &state, &uid, &template, &created, NULL)) > 0) {
                table_add(t, id);
                table_add(t, state);
                table_set_color(t, state_color(state));
                table_add_user(t, uid);
                table_add(t, template);
                table_add_age(t, created);
        }
        return r;
}

int verb_list(int argc, char **argv) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        static const char *const headers[] = { "ID", "STATE", "OWNER", "TEMPLATE", "CREATED", NULL };
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(table_freep) Table *t = NULL;
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

        r = ctl_call(bus, "Asking cubed", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "ListSandboxes", &reply, &error, NULL);
        t = table_new(headers);
        if (r >= 0)
                r = t ? fill(reply, t) : -ENOMEM;
        if (r < 0)
                return ctl_fail(r, &error, "list sandboxes");
        pager_open();
        return table_print(t, "sandbox", "sandboxes");
}
