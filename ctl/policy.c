/* SPDX-License-Identifier: Apache-2.0 */

/* The network policy of a sandbox: shown, replaced, and changed by single rules. The latter is done by cubed, from what is
 * true then, so that nobody's change is lost. */

#include <json-c/json.h>
#include <stdio.h>

#include "ctl/ctl.h"
#include "ctl/pager.h"
#include "ctl/policy-options.h"
#include "ctl/properties.h"
#include "ctl/table.h"
#include "ctl/text.h"

static const char *const lists[] = { "allow", "deny", "inbound" };

/* Its argument is "ID RULE..." of most words. */
static int parse_plain(int argc, char **argv, int least, int most) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        int c;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                int r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        int r = ctl_check_arguments(argc, argv, least, most);
        return r < 0 ? r : ctl_check_id(argv[optind]);
}

/* *ret is a reference of its own. */
static int get_policy(sd_bus *bus, const char *id, json_object **ret) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        char path[CUBE_BUS_PATH_MAX];
        json_object *o = NULL, *policy;

        int r = properties_get(bus, client_path(path, CUBE_BUS_PATH_SANDBOX, id), CUBE_BUS_SANDBOX, &o, &error);
        if (r < 0)
                return ctl_fail(r, &error, "look at the network policy of sandbox %s", id);
        r = json_object_object_get_ex(o, "NetworkPolicy", &policy) ? 0 : -EBADMSG;
        if (r < 0)
                ctl_note("This cubed tells of no network policies.");
        else
                *ret = json_object_get(policy);
        json_object_put(o);
        return r;
}

static void add_rows(Table *t, json_object *policy) {
        json_object *l;

        table_add(t, "default");
        table_add(t, properties_string(policy, "default"));
        for (size_t i = 0; i < ELEMENTSOF(lists); i++) {
                if (!json_object_object_get_ex(policy, lists[i], &l))
                        continue;
                for (size_t k = 0; k < json_object_array_length(l); k++) {
                        table_add(t, lists[i]);
                        table_add(t, json_object_get_string(json_object_array_get_idx(l, k)));
                }
        }
}

static int policy_show(int argc, char **argv) {
        static const char *const headers[] = { "LIST", "RULE", NULL };
        _cleanup_(table_freep) Table *t = NULL;
        json_object *policy = NULL;
        sd_bus *bus;

        int r = parse_plain(argc, argv, 1, 1);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r >= 0)
                r = get_policy(bus, argv[optind], &policy);
        if (r < 0)
                return r;
        if (ctl_options.json != JSON_OFF)
                return json_print(policy);

        t = table_new(headers);
        if (t)
                add_rows(t, policy);
        json_object_put(policy);
        pager_open();
        return t ? table_print(t, NULL, NULL) : -ENOMEM;
}

static int call_set(const char *id, const PolicyOptions *o) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        char path[CUBE_BUS_PATH_MAX];
        sd_bus *bus;

        int r = ctl_connect(&bus);
        if (r < 0)
                return r;
        r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, id),
                                           CUBE_BUS_SANDBOX, "SetNetworkPolicy");
        if (r >= 0)
                r = policy_options_append(call, o);
        if (r >= 0)
                r = ctl_call_message(bus, "Setting the network policy", call, NULL, &error);
        return r < 0 ? ctl_fail(r, &error, "set the network policy of sandbox %s", id) : 0;
}

static int policy_set(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                POLICY_OPTIONS("default"),
                {},
        };
        _cleanup_(policy_options_done) PolicyOptions o = {};
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = policy_option(&o, CTL_OPTION_POLICY, "default", c);
                if (r == 0)
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, 1);
        if (r >= 0)
                r = ctl_check_id(argv[optind]);
        if (r >= 0 && !policy_options_given(&o))
                r = ctl_usage("'policy set' needs --default=, --allow=, --deny= or --inbound=; 'policy clear' denies everything.");
        return r < 0 ? r : call_set(argv[optind], &o);
}

static int policy_clear(int argc, char **argv) {
        int r = parse_plain(argc, argv, 1, 1);
        return r < 0 ? r : call_set(argv[optind], &(PolicyOptions) {});
}

static int call_change(sd_bus *bus, const char *id, const PolicyOptions *add, const PolicyOptions *remove) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        char path[CUBE_BUS_PATH_MAX];

        int r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, id),
                                               CUBE_BUS_SANDBOX, "ChangeNetworkPolicy");
        if (r >= 0)
                r = policy_options_append(call, add);
        if (r >= 0)
                r = policy_options_append(call, remove);
        if (r >= 0)
                r = ctl_call_message(bus, "Changing the network policy", call, NULL, &error);
        return r < 0 ? ctl_fail(r, &error, "change the network policy of sandbox %s", id) : 0;
}

/* "allow ID RULE..." and its like: the word is the list. */
static int policy_add_rules(int argc, char **argv) {
        PolicyOptions add = {};
        sd_bus *bus;

        int r = parse_plain(argc, argv, 2, -1);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;

        char **rules = argv + optind + 1;
        if (streq(argv[0], "allow"))
                add.allow = rules;
        else if (streq(argv[0], "deny"))
                add.deny = rules;
        else
                add.inbound = rules;
        return call_change(bus, argv[optind], &add, &(PolicyOptions) {});
}

static bool list_has(json_object *policy, const char *list, const char *rule) {
        json_object *l;

        if (!json_object_object_get_ex(policy, list, &l))
                return false;
        for (size_t i = 0; i < json_object_array_length(l); i++)
                if (streq(strempty(json_object_get_string(json_object_array_get_idx(l, i))), rule))
                        return true;
        return false;
}

static int find_rule(json_object *policy, const char *id, const char *rule, PolicyOptions *o) {
        char ***to[] = { &o->allow, &o->deny, &o->inbound };
        bool found = false;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(lists); i++)
                if (list_has(policy, lists[i], rule)) {
                        r = text_strv_add(to[i], rule);
                        found = true;
                }
        if (r >= 0 && !found)
                r = ctl_usage("The network policy of sandbox %s has no rule '%s'; 'cubectl policy show %s' shows those that it has.",
                              id, rule, id);
        return r;
}

/* Wherever it stands. */
static int policy_remove(int argc, char **argv) {
        _cleanup_(policy_options_done) PolicyOptions remove = {};
        json_object *policy = NULL;
        sd_bus *bus;

        int r = parse_plain(argc, argv, 2, -1);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r >= 0)
                r = get_policy(bus, argv[optind], &policy);
        for (int i = optind + 1; r >= 0 && i < argc; i++)
                r = find_rule(policy, argv[optind], argv[i], &remove);
        json_object_put(policy);
        return r < 0 ? r : call_change(bus, argv[optind], &(PolicyOptions) {}, &remove);
}

int verb_policy(int argc, char **argv) {
        static const CtlWord words[] = {
                { "show", policy_show },
                { "set", policy_set },
                { "allow", policy_add_rules },
                { "deny", policy_add_rules },
                { "inbound", policy_add_rules },
                { "remove", policy_remove },
                { "clear", policy_clear },
        };

        return ctl_word(argc, argv, words, ELEMENTSOF(words), NULL, "show, set, allow, deny, inbound, remove or clear");
}
