/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/gone.h"
#include "ctl/pager.h"
#include "ctl/properties.h"
#include "ctl/show.h"
#include "ctl/table.h"
#include "ctl/text.h"

/* Does this error mean that there is no such object? */
bool error_is_gone(const sd_bus_error *error) {
        return sd_bus_error_has_name(error, BUS_ERROR_NO_SUCH_SANDBOX) ||
               sd_bus_error_has_name(error, SD_BUS_ERROR_UNKNOWN_OBJECT) ||
               sd_bus_error_has_name(error, SD_BUS_ERROR_UNKNOWN_PROPERTY);
}

int sandbox_properties(sd_bus *bus, const char *id, json_object **ret) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        char path[CUBE_BUS_PATH_MAX];

        int r = properties_get(bus, client_path(path, CUBE_BUS_PATH_SANDBOX, id), CUBE_BUS_SANDBOX, ret, &error);
        if (r >= 0)
                return 0;
        if (!error_is_gone(&error))
                return ctl_fail(r, &error, "look at sandbox %s", id);

        r = gone_properties(id, ret);
        if (r == -ENOENT)
                ctl_note("There is no sandbox %s, and the journal tells of no end of one; 'cubectl list' shows yours.", id);
        else if (r < 0)
                ctl_note("There is no sandbox %s, and the journal can't be read: %s", id, strerror(-r));
        return r;
}

int sandbox_statistics(sd_bus *bus, const char *id, bool ask, json_object **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL, *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        char path[CUBE_BUS_PATH_MAX];

        int r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, id),
                                               CUBE_BUS_SANDBOX, "GetStatistics");
        if (r >= 0 && !ask)
                r = sd_bus_message_set_allow_interactive_authorization(call, 0);
        if (r >= 0)
                r = ctl_call_message(bus, NULL, call, &reply, &error);
        return r < 0 ? r : bus_to_json(reply, ret);
}

/* Counters are asked for apart, and not everybody who sees the properties may: no try that is only to be denied, nor one
 * for what nobody wants. */
static bool wants_counters(json_object *o) {
        bool mine = geteuid() == 0 || properties_u64(o, "Owner") == geteuid() || ctl_options.host;

        if (!mine || streq(properties_string(o, "State"), "gone"))
                return false;
        if (!ctl_options.properties)
                return true;
        for (char **l = ctl_options.properties; *l; l++)
                if (!json_object_object_get_ex(o, *l, NULL))
                        return true;
        return false;
}

/* Those of the network: what is not of cubed's own the scope's unit tells. */
static int add_counters(sd_bus *bus, const char *id, json_object *o) {
        json_object *all = NULL;
        int r = 0;

        if (!wants_counters(o) || sandbox_statistics(bus, id, false, &all) < 0)
                return 0;
        json_object_object_foreach(all, name, v)
                if (r >= 0 && startswith(name, "Network") && json_object_object_add(o, name, json_object_get(v)) < 0)
                        r = -ENOMEM;
        json_object_put(all);
        return r;
}

static int show_objects(json_object *all) {
        size_t n = json_object_array_length(all);

        if (ctl_options.json != JSON_OFF)
                return json_print(json_object_get(all));

        pager_open();
        for (size_t i = 0; i < n; i++) {
                if (i > 0)
                        putchar('\n');
                int r = properties_print(json_object_array_get_idx(all, i));
                if (r < 0)
                        return r;
        }
        return 0;
}

static int add_selected(json_object *all, json_object *o) {
        json_object *selected = properties_select(o);

        json_object_put(o);
        if (!selected || json_object_array_add(all, selected) < 0) {
                json_object_put(selected);
                return -ENOMEM;
        }
        return 0;
}

static int list_ids(sd_bus *bus, char ***ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *id;

        int r = ctl_call(bus, "Asking cubed", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "ListSandboxes", &reply, &error, NULL);
        if (r >= 0)
                r = sd_bus_message_enter_container(reply, 'a', "(ssusto)");
        while (r >= 0 && (r = sd_bus_message_read(reply, "(ssusto)", &id, NULL, NULL, NULL, NULL, NULL)) > 0)
                r = text_strv_add(ret, id);
        return r < 0 ? ctl_fail(r, &error, "list sandboxes") : 0;
}

static int show_ids(sd_bus *bus, char **ids) {
        json_object *all = json_object_new_array();
        int r = all ? 0 : -ENOMEM, result = EXIT_SUCCESS;

        for (; r >= 0 && ids && *ids; ids++) {
                json_object *o;
                if (sandbox_properties(bus, *ids, &o) < 0)
                        result = EXIT_FAILURE;
                else {
                        r = add_counters(bus, *ids, o);
                        if (r >= 0)
                                r = add_selected(all, o);
                        else
                                json_object_put(o);
                }
        }
        if (r >= 0)
                r = show_objects(all);
        json_object_put(all);
        return r < 0 ? r : result;
}

int verb_show(int argc, char **argv) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        _cleanup_strv_ char **all = NULL;
        sd_bus *bus;
        int c, r = 0;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        for (int i = optind; r >= 0 && i < argc; i++)
                r = ctl_check_id(argv[i]);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r >= 0 && optind == argc)
                r = list_ids(bus, &all);
        if (r < 0)
                return r;
        return show_ids(bus, optind < argc ? argv + optind : all);
}
