/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"
#include "ctl/create-options.h"
#include "ctl/pager.h"
#include "ctl/properties.h"
#include "ctl/table.h"

static TextColor state_color(const char *state) {
        if (streq(state, "running"))
                return TEXT_GREEN;
        if (streq(state, "paused"))
                return TEXT_YELLOW;
        return streq(state, "failed") ? TEXT_RED : TEXT_NORMAL;
}

enum {
        LIST_TENANT = CTL_OPTION_VERB,
        LIST_LABEL,
        LIST_STATE,
};

typedef struct ListFilter {
        const char *tenant;
        char **labels, **states;
} ListFilter;

static void list_filter_done(ListFilter *f) {
        text_strv_free(f->labels);
        text_strv_free(f->states);
}

static int add_states(ListFilter *f, char *text) {
        char *state;
        int r = 0;

        while (r >= 0 && (state = strsep(&text, ",")))
                r = text_strv_add(&f->states, state);
        return r;
}

static int parse(int argc, char **argv, ListFilter *f) {
        static const struct option options[] = {
                { "tenant", required_argument, NULL, LIST_TENANT },
                { "label", required_argument, NULL, LIST_LABEL },
                { "state", required_argument, NULL, LIST_STATE },
                CTL_GLOBAL_OPTIONS, {},
        };
        int c, r = 0;

        ctl_reset_getopt();
        while (r >= 0 && (c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0)
                switch (c) {
                case LIST_TENANT:
                        f->tenant = optarg;
                        break;
                case LIST_LABEL:
                        r = strchr(optarg, '=') ? text_strv_add(&f->labels, optarg) : ctl_usage("--label=%s is not KEY=VALUE.", optarg);
                        break;
                case LIST_STATE:
                        r = add_states(f, optarg);
                        break;
                default:
                        r = ctl_global_option(c);
                }
        return r < 0 ? r : ctl_check_arguments(argc, argv, 0, 0);
}

static int append_states(sd_bus_message *m, char **states) {
        int r = sd_bus_message_open_container(m, 'e', "sv");

        if (r >= 0)
                r = sd_bus_message_append(m, "s", "states");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "as");
        if (r >= 0)
                r = sd_bus_message_append_strv(m, states);
        for (unsigned i = 0; r >= 0 && i < 2; i++)
                r = sd_bus_message_close_container(m);
        return r;
}

/* after: what the page before ended with, "": there is none. */
static int ask_page(sd_bus *bus, const ListFilter *f, const char *after, sd_bus_message **ret, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        int r = sd_bus_message_new_method_call(bus, &m, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "FindSandboxes");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r >= 0 && f->tenant)
                r = sd_bus_message_append(m, "{sv}", "tenant", "s", f->tenant);
        if (r >= 0 && f->labels)
                r = create_append_labels(m, f->labels);
        if (r >= 0 && f->states)
                r = append_states(m, f->states);
        if (r >= 0 && *after)
                r = sd_bus_message_append(m, "{sv}", "after", "s", after);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : ctl_call_message(bus, "Asking cubed", m, ret, error);
}

/* Properties of each, put into all. */
static int read_page(sd_bus_message *reply, json_object *all, const char **ret_next) {
        json_object *page = NULL;

        int r = bus_to_json(reply, &page);
        for (size_t i = 0; r >= 0 && i < json_object_array_length(page); i++) {
                json_object *o = json_object_array_get_idx(json_object_array_get_idx(page, i), 1);
                r = json_object_array_add(all, json_object_get(o)) < 0 ? -ENOMEM : 0;
        }
        json_object_put(page);
        return r < 0 ? r : sd_bus_message_read(reply, "s", ret_next);
}

static int find(sd_bus *bus, const ListFilter *f, json_object *all, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const char *next = "";
        int r;

        do {
                sd_bus_message *page = NULL;
                r = ask_page(bus, f, next, &page, error);
                sd_bus_message_unref(reply);
                reply = page; /* next is in it */
                if (r >= 0)
                        r = read_page(reply, all, &next);
        } while (r >= 0 && *next);
        return r;
}

static bool has_tenants(json_object *all) {
        for (size_t i = 0; i < json_object_array_length(all); i++)
                if (*properties_string(json_object_array_get_idx(all, i), "Tenant"))
                        return true;
        return false;
}

static void fill(Table *t, json_object *all, bool tenants) {
        for (size_t i = 0; i < json_object_array_length(all); i++) {
                json_object *o = json_object_array_get_idx(all, i);

                table_add(t, properties_string(o, "Id"));
                table_add(t, properties_string(o, "State"));
                table_set_color(t, state_color(properties_string(o, "State")));
                table_add_user(t, (uid_t) properties_u64(o, "Owner"));
                if (tenants)
                        table_add(t, properties_string(o, "Tenant"));
                table_add(t, properties_string(o, "TemplateName"));
                table_add_age(t, properties_u64(o, "CreatedTimestamp"));
        }
}

static int print(json_object *all) {
        static const char *const headers[] = { "ID", "STATE", "OWNER", "TEMPLATE", "CREATED", NULL };
        static const char *const with_tenants[] = { "ID", "STATE", "OWNER", "TENANT", "TEMPLATE", "CREATED", NULL };
        /* Programs find the same keys wherever they look. */
        bool tenants = ctl_options.json != JSON_OFF || has_tenants(all);
        _cleanup_(table_freep) Table *t = table_new(tenants ? with_tenants : headers);

        if (!t)
                return -ENOMEM;
        fill(t, all, tenants);
        pager_open();
        return table_print(t, "sandbox", "sandboxes");
}

int verb_list(int argc, char **argv) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(list_filter_done) ListFilter filter = {};
        json_object *all;
        sd_bus *bus;

        int r = parse(argc, argv, &filter);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;

        all = json_object_new_array();
        r = all ? find(bus, &filter, all, &error) : -ENOMEM;
        if (r < 0)
                r = ctl_fail(r, &error, "list sandboxes");
        else
                r = print(all);
        json_object_put(all);
        return r;
}
