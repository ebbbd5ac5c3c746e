/* SPDX-License-Identifier: Apache-2.0 */

/* The API keys of cube-gateway, which is another service than cubed. */

#include <stdio.h>

#include "ctl/ctl.h"
#include "ctl/gateway-start.h"
#include "ctl/pager.h"
#include "ctl/table.h"

#define DEFAULT_NAME "key"

enum { APIKEY_TENANT = CTL_OPTION_VERB };

static int fail(int r, const sd_bus_error *error, const char *what) {
        if (sd_bus_error_has_names(error, SD_BUS_ERROR_SERVICE_UNKNOWN, SD_BUS_ERROR_NAME_HAS_NO_OWNER,
                                   "org.freedesktop.systemd1.NoSuchUnit"))
                return ctl_fail_text(r, "cube-gateway is not running here (start it: systemctl start cube-gateway.socket)", "%s",
                                     what);
        if (sd_bus_error_has_name(error, "org.freedesktop.DBus.Error.TimedOut"))
                return ctl_fail_text(r, "cube-gateway did not start: 'journalctl -u cube-gateway' says why", "%s", what);
        return ctl_fail(r, error, "%s", what);
}

/* An error was printed. */
static int connect_gateway(sd_bus **ret, const char *what) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *why = NULL;

        int r = ctl_connect(ret);
        if (r < 0)
                return r;
        r = gateway_start(*ret, &why, &error);
        if (r < 0 && !isempty(why))
                return ctl_fail_text(r, why, "%s, cube-gateway did not start", what);
        return r < 0 ? fail(r, &error, what) : 0;
}

static int new_call(sd_bus *bus, const char *method, sd_bus_message **ret) {
        return sd_bus_message_new_method_call(bus, ret, GATEWAY_BUS_NAME, GATEWAY_BUS_PATH, GATEWAY_BUS_NAME, method);
}

static int parse(int argc, char **argv, int least, int most, const char **ret_tenant) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "tenant", required_argument, NULL, APIKEY_TENANT },
                {},
        };
        int c;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                if (c == APIKEY_TENANT && ret_tenant) {
                        *ret_tenant = optarg;
                        continue;
                }
                if (c == APIKEY_TENANT)
                        return ctl_usage("'apikey %s' has no --tenant=.", argv[0]);
                int r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        return ctl_check_arguments(argc, argv, least, most);
}

static int call_create(sd_bus *bus, const char *name, const char *tenant, sd_bus_message **ret, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;

        int r = new_call(bus, "CreateKey", &call);
        if (r >= 0)
                r = tenant ? sd_bus_message_append(call, "sa{sv}", name, 1, "tenant", "s", tenant)
                           : sd_bus_message_append(call, "sa{sv}", name, 0);
        return r < 0 ? r : ctl_call_message(bus, "Making a key", call, ret, error);
}

static int apikey_create(int argc, char **argv) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *tenant = NULL, *id, *key;
        sd_bus *bus;

        int r = parse(argc, argv, 0, 1, &tenant);
        if (r >= 0)
                r = connect_gateway(&bus, "make an API key");
        if (r < 0)
                return r;
        r = call_create(bus, optind < argc ? argv[optind] : DEFAULT_NAME, tenant, &reply, &error);
        if (r >= 0)
                r = sd_bus_message_read(reply, "ss", &id, &key);
        if (r < 0)
                return fail(r, &error, "make an API key");
        ctl_note("This is key %s. It is shown this one time.", id);
        puts(key);
        return fflush(stdout) == 0 ? 0 : -EIO;
}

static int fill(sd_bus_message *reply, Table *t) {
        const char *id, *name, *tenant;
        uint64_t created;

        int r = sd_bus_message_enter_container(reply, 'a', "(" GATEWAY_BUS_KEY ")");
        while (r >= 0 && (r = sd_bus_message_read(reply, "(" GATEWAY_BUS_KEY ")", &id, &name, &tenant, &created)) > 0) {
                table_add(t, id);
                table_add(t, name);
                table_add(t, tenant);
                table_add_age(t, created);
        }
        return r;
}

static int apikey_list(int argc, char **argv) {
        static const char *const headers[] = { "ID", "NAME", "TENANT", "CREATED", NULL };
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL, *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(table_freep) Table *t = NULL;
        sd_bus *bus;

        int r = parse(argc, argv, 0, 0, NULL);
        if (r >= 0)
                r = connect_gateway(&bus, "list the API keys");
        if (r < 0)
                return r;
        r = new_call(bus, "ListKeys", &call);
        if (r >= 0)
                r = ctl_call_message(bus, "Asking cube-gateway", call, &reply, &error);
        t = table_new(headers);
        if (r >= 0)
                r = t ? fill(reply, t) : -ENOMEM;
        if (r < 0)
                return fail(r, &error, "list the API keys");
        pager_open();
        return table_print(t, "key", "keys");
}

static int revoke_key(sd_bus *bus, const char *id) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        int r = new_call(bus, "RevokeKey", &call);
        if (r >= 0)
                r = sd_bus_message_append(call, "s", id);
        if (r >= 0)
                r = ctl_call_message(bus, "Revoking the key", call, NULL, &error);
        return r < 0 ? fail(r, &error, "revoke the API key") : 0;
}

static int apikey_revoke(int argc, char **argv) {
        int result = EXIT_SUCCESS;
        sd_bus *bus;

        int r = parse(argc, argv, 1, -1, NULL);
        if (r >= 0)
                r = connect_gateway(&bus, "revoke the API key");
        if (r < 0)
                return r;
        for (int i = optind; i < argc; i++)
                if (revoke_key(bus, argv[i]) < 0)
                        result = EXIT_FAILURE;
        return result;
}

int verb_apikey(int argc, char **argv) {
        static const CtlWord words[] = {
                { "create", apikey_create },
                { "list", apikey_list },
                { "revoke", apikey_revoke },
        };

        return ctl_word(argc, argv, words, ELEMENTSOF(words), "list", "create, list or revoke");
}
