/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ctl/ctl.h"
#include "ctl/pager.h"
#include "ctl/properties.h"
#include "ctl/table.h"
#include "ctl/template.h"
#include "ctl/values.h"

static int parse_global(int argc, char **argv, int least, int most) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        int c;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                int r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        return ctl_check_arguments(argc, argv, least, most);
}

/* "a:latest,b:1" of one of them. */
static int join_aliases(sd_bus_message *names, const char *id, const char *built_as, char **ret) {
        const char *name, *of;
        uint32_t uid;

        int r = sd_bus_message_rewind(names, true);
        if (r >= 0)
                r = sd_bus_message_enter_container(names, 'a', "(sus)");
        while (r >= 0 && (r = sd_bus_message_read(names, "(sus)", &name, &uid, &of)) > 0) {
                _cleanup_free_ char *before = *ret;

                if (!streq(of, id) || streq(name, built_as)) {
                        (void) TAKE_PTR(before);
                        continue;
                }
                if (asprintf(ret, "%s%s%s", strempty(before), before ? "," : "", name) < 0) {
                        *ret = NULL;
                        return -ENOMEM;
                }
        }
        return r;
}

static int fill(sd_bus_message *reply, sd_bus_message *names, Table *t) {
        const char *id, *name;
        uint64_t created, size;
        uint32_t uid;

        int r = sd_bus_message_enter_container(reply, 'a', "(ssutto)");
        while (r >= 0 && (r = sd_bus_message_read(reply, "(ssutto)", &id, &name, &uid, &created, &size, NULL)) > 0) {
                _cleanup_free_ char *aliases = NULL;
                r = join_aliases(names, id, name, &aliases);
                if (r < 0)
                        break;
                table_add(t, name);
                table_add(t, id);
                table_add_user(t, uid);
                table_add_size(t, size);
                table_add_age(t, created);
                table_add(t, aliases);
        }
        return r;
}

static int template_list(int argc, char **argv) {
        static const char *const headers[] = { "NAME", "ID", "OWNER", "SIZE", "CREATED", "ALIASES", NULL };
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL, *names = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(table_freep) Table *t = NULL;
        sd_bus *bus;

        int r = parse_global(argc, argv, 0, 0);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;

        r = ctl_call(bus, "Asking cubed", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "ListTemplates", &reply, &error, NULL);
        if (r >= 0)
                r = ctl_call(bus, "Asking cubed", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "ListTemplateNames", &names, &error, NULL);
        t = table_new(headers);
        if (r >= 0)
                r = t ? fill(reply, names, t) : -ENOMEM;
        if (r < 0)
                return ctl_fail(r, &error, "list templates");
        pager_open();
        return table_print(t, "template", "templates");
}

static int show_one(sd_bus *bus, const char *ref, json_object **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *path;

        int r = ctl_call(bus, "Asking cubed", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "GetTemplate", &reply, &error, "s", ref);
        if (r >= 0)
                r = sd_bus_message_read(reply, "o", &path);
        if (r >= 0)
                r = properties_get(bus, path, CUBE_BUS_TEMPLATE, ret, &error);
        return r < 0 ? ctl_fail(r, &error, "look at template %s", ref) : 0;
}

static int template_show(int argc, char **argv) {
        json_object *all = NULL, *o;
        sd_bus *bus;

        int r = parse_global(argc, argv, 1, -1);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;
        all = json_object_new_array();
        r = all ? 0 : -ENOMEM;

        for (int i = optind; r >= 0 && i < argc; i++) {
                r = show_one(bus, argv[i], &o);
                if (r < 0)
                        break;
                if (ctl_options.json != JSON_OFF)
                        r = json_object_array_add(all, properties_select(o));
                else {
                        fputs(i > optind ? "\n" : "", stdout);
                        r = properties_print(o);
                }
                json_object_put(o);
        }
        if (r >= 0 && ctl_options.json != JSON_OFF)
                r = json_print(json_object_get(all));
        json_object_put(all);
        return r;
}

static int template_rm(int argc, char **argv) {
        int result = EXIT_SUCCESS;
        sd_bus *bus;

        int r = parse_global(argc, argv, 1, -1);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;

        for (int i = optind; i < argc; i++) {
                _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
                r = ctl_call(bus, "Removing the template", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "RemoveTemplate", NULL,
                             &error, "s", argv[i]);
                if (r < 0) {
                        ctl_fail(r, &error, "remove template %s", argv[i]);
                        result = EXIT_FAILURE;
                }
        }
        return result;
}

static int template_alias(int argc, char **argv) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "remove", no_argument, NULL, 'r' },
                {},
        };
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        bool remove = false;
        sd_bus *bus;
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = c == 'r' ? 0 : ctl_global_option(c);
                if (r < 0)
                        return r;
                remove |= c == 'r';
        }
        r = ctl_check_arguments(argc, argv, remove ? 1 : 2, remove ? 1 : 2);
        if (r >= 0)
                r = value_template_name(argv[optind]);
        if (r >= 0)
                r = ctl_connect(&bus);
        if (r < 0)
                return r;
        const char *name = remove ? "" : argv[optind + 1];
        r = ctl_call(bus, "Naming the template", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "AliasTemplate", NULL, &error, "ss",
                     argv[optind], name);
        if (r < 0)
                return remove ? ctl_fail(r, &error, "take the name %s away", argv[optind]) :
                                ctl_fail(r, &error, "name template %s %s", name, argv[optind]);
        return 0;
}

int verb_template(int argc, char **argv) {
        static const CtlWord words[] = {
                { "list", template_list },
                { "show", template_show },
                { "build", template_build },
                { "alias", template_alias },
                { "export", template_export },
                { "import", template_import },
                { "rm", template_rm },
        };

        return ctl_word(argc, argv, words, ELEMENTSOF(words), "list", "list, show, build, alias, export, import or rm");
}
