/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/pager.h"
#include "ctl/table.h"

static int fill(sd_bus_message *reply, Table *t, uint64_t *ret_bytes, const char **ret_note) {
        const char *kind, *name;
        uint64_t bytes;

        int r = sd_bus_message_enter_container(reply, 'a', "(sst)");
        while (r >= 0 && (r = sd_bus_message_read(reply, "(sst)", &kind, &name, &bytes)) > 0) {
                table_add(t, kind);
                table_add(t, name);
                table_add_size(t, bytes);
                *ret_bytes += bytes;
        }
        if (r >= 0)
                r = sd_bus_message_exit_container(reply);
        return r < 0 ? r : sd_bus_message_read(reply, "s", ret_note);
}

static int collect(bool dry_run) {
        static const char *const headers[] = { "KIND", "NAME", "SIZE", NULL };
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(table_freep) Table *t = table_new(headers);
        char size[FORMAT_SIZE_MAX];
        const char *note = NULL;
        uint64_t bytes = 0;
        sd_bus *bus;

        int r = t ? ctl_connect(&bus) : -ENOMEM;
        if (r < 0)
                return r;
        r = ctl_call(bus, "Looking for what nothing refers to", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "CollectGarbage", &reply, &error,
                     "a{sv}", 1, "dry-run", "b", dry_run);
        if (r >= 0)
                r = fill(reply, t, &bytes, &note);
        if (r < 0)
                return ctl_fail(r, &error, "free what nothing refers to");
        pager_open();
        r = table_print(t, NULL, NULL);
        if (r >= 0 && ctl_options.legend && ctl_options.json == JSON_OFF)
                printf("%s%s %s.\n", table_rows(t) > 0 ? "\n" : "", format_size(size, bytes), dry_run ? "would be freed" : "freed");
        if (!isempty(note))
                ctl_note("%s", note);
        return r < 0 || fflush(stdout) == 0 ? r : -EIO;
}

int verb_gc(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "dry-run", no_argument, NULL, 'd' },
                {},
        };
        bool dry_run = false;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = c == 'd' ? 0 : ctl_global_option(c);
                if (r < 0)
                        return r;
                dry_run |= c == 'd';
        }
        r = ctl_check_arguments(argc, argv, 0, 0);
        return r < 0 ? r : collect(dry_run);
}
