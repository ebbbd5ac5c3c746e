/* SPDX-License-Identifier: Apache-2.0 */
#include <json-c/json.h>
#include <stdio.h>

#include "base/parse.h"
#include "ctl/create-options.h"
#include "ctl/ctl.h"
#include "ctl/table.h"

static int call_fork(sd_bus *bus, const char *id, uint32_t n, const CreateOptions *o, sd_bus_message **ret,
                     sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;
        char path[CUBE_BUS_PATH_MAX];

        int r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, id),
                                               CUBE_BUS_SANDBOX, "Fork");
        if (r >= 0)
                r = sd_bus_message_append(call, "u", n);
        if (r >= 0)
                r = create_options_append(call, o);
        return r < 0 ? r : ctl_call_message(bus, "Forking", call, ret, error);
}

/* One that failed has an error in place of an id. */
static int add_json(json_object *all, const char *key, const char *value) {
        json_object *o = json_object_new_object();

        if (!o || json_object_object_add(o, key, json_object_new_string(value)) < 0 ||
            json_object_array_add(all, o) < 0) {
                json_object_put(o);
                return -ENOMEM;
        }
        return 0;
}

/* How many there are not. */
static int print_forks(sd_bus_message *reply, json_object *all) {
        const char *id, *name, *message;
        int made, failed = 0;

        int r = sd_bus_message_enter_container(reply, 'a', "(" CUBE_BUS_FORKED ")");
        while (r >= 0 && (r = sd_bus_message_read(reply, "(" CUBE_BUS_FORKED ")", &made, &id, NULL, &name, &message)) > 0) {
                const sd_bus_error error = { .name = name, .message = message };
                if (made && !sandbox_id_valid(id))
                        return -EBADMSG;
                if (!made) {
                        (void) ctl_fail(0, &error, "create a copy");
                        failed++;
                }
                if (all)
                        r = add_json(all, made ? "id" : "error", made ? id : client_error_text(&error, 0));
                else if (made)
                        puts(id);
        }
        return r < 0 ? r : failed;
}

static int fork_sandbox(const char *id, uint32_t n, const CreateOptions *o) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        json_object *all = NULL;
        sd_bus *bus;

        int r = ctl_connect(&bus);
        if (r < 0)
                return r;
        r = call_fork(bus, id, n, o, &reply, &error);
        if (r >= 0 && ctl_options.json != JSON_OFF) {
                all = json_object_new_array();
                r = all ? 0 : -ENOMEM;
        }
        if (r >= 0)
                r = print_forks(reply, all);
        if (r < 0) {
                json_object_put(all);
                return ctl_fail(r, &error, "fork sandbox %s", id);
        }

        int failed = r;
        r = all ? json_print(all) : fflush(stdout) == 0 ? 0 : -EIO;
        return r < 0 ? r : failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int parse_number(const char *s, uint32_t *ret) {
        if (parse_u32(s, ret) < 0 || *ret == 0)
                return ctl_usage("-n %s is not a number of sandboxes.", s);
        return 1;
}

int verb_fork(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                FORK_OPTIONS,
                { "number", required_argument, NULL, 'n' },
                {},
        };
        _cleanup_(create_options_done) CreateOptions o = {};
        uint32_t n = 1;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT "n:", options, NULL)) >= 0) {
                r = c == 'n' ? parse_number(optarg, &n) : create_option(&o, c);
                if (r == 0)
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, 1);
        if (r >= 0)
                r = ctl_check_id(argv[optind]);
        return r < 0 ? r : fork_sandbox(argv[optind], n, &o);
}
