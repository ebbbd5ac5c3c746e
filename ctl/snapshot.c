/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/pager.h"
#include "ctl/properties.h"
#include "ctl/snapshot.h"
#include "ctl/table.h"

enum {
        SNAPSHOT_NAME = CTL_OPTION_VERB,
        SNAPSHOT_SANDBOX,
        SNAPSHOT_KIND,
};

typedef struct SnapshotOptions {
        const char *name, *sandbox, *kind;
} SnapshotOptions;

static int append_filter(sd_bus_message *m, const char *name, const char *value) {
        return value ? sd_bus_message_append(m, "{sv}", name, "s", value) : 0;
}

int snapshot_call_list(sd_bus *bus, const char *sandbox, const char *kind, sd_bus_message **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        int r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER,
                                               "ListSnapshots");
        if (r >= 0)
                r = sd_bus_message_open_container(call, 'a', "{sv}");
        if (r >= 0)
                r = append_filter(call, "sandbox", sandbox);
        if (r >= 0)
                r = append_filter(call, "kind", kind);
        if (r >= 0)
                r = sd_bus_message_close_container(call);
        if (r >= 0)
                r = ctl_call_message(bus, "Asking cubed", call, ret, &error);
        return r < 0 ? ctl_fail(r, &error, "list snapshots") : 0;
}

typedef struct Item {
        const char *id, *name, *kind, *sandbox;
        uint64_t number, created, size;
        uint32_t owner;
} Item;

static void add_snapshot(Table *t, const Item *i) {
        table_add(t, i->id);
        table_add(t, i->name);
        table_add(t, i->kind);
        table_add_number(t, i->number);
        table_add(t, i->sandbox);
        table_add_user(t, i->owner);
        table_add_size(t, i->size);
        table_add_age(t, i->created);
}

static void add_checkpoint(Table *t, const Item *i) {
        table_add_number(t, i->number);
        table_add(t, i->id);
        table_add_size(t, i->size);
        table_add_age(t, i->created);
}

static int fill(sd_bus_message *reply, Table *t, void (*add)(Table *t, const Item *i)) {
        Item i;

        int r = sd_bus_message_enter_container(reply, 'a', "(" CUBE_BUS_SNAPSHOT_ITEM ")");
        while (r >= 0 && (r = sd_bus_message_read(reply, "(" CUBE_BUS_SNAPSHOT_ITEM ")", &i.id, &i.name, &i.kind, &i.number,
                                                  &i.sandbox, &i.owner, &i.created, &i.size, NULL)) > 0)
                add(t, &i);
        return r;
}

static int list(const SnapshotOptions *o) {
        static const char *const headers[] = { "ID", "NAME", "KIND", "NUMBER", "SANDBOX", "OWNER", "SIZE", "CREATED", NULL };
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(table_freep) Table *t = NULL;
        sd_bus *bus;

        int r = ctl_connect(&bus);
        if (r >= 0)
                r = snapshot_call_list(bus, o->sandbox, o->kind, &reply);
        if (r < 0)
                return r;
        t = table_new(headers);
        r = t ? fill(reply, t, add_snapshot) : -ENOMEM;
        if (r < 0)
                return ctl_fail(r, NULL, "list snapshots");
        pager_open();
        return table_print(t, "snapshot", "snapshots");
}

static int list_checkpoints(const char *id) {
        static const char *const headers[] = { "NUMBER", "ID", "SIZE", "CREATED", NULL };
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(table_freep) Table *t = NULL;
        sd_bus *bus;

        int r = ctl_connect(&bus);
        if (r >= 0)
                r = snapshot_call_list(bus, id, "checkpoint", &reply);
        if (r < 0)
                return r;
        t = table_new(headers);
        r = t ? fill(reply, t, add_checkpoint) : -ENOMEM;
        if (r < 0)
                return ctl_fail(r, NULL, "list checkpoints");
        pager_open();
        return table_print(t, "checkpoint", "checkpoints");
}

static int take(const char *id, const char *name) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *snapshot;
        sd_bus *bus;

        int r = ctl_connect(&bus);
        if (r < 0)
                return r;
        if (name)
                r = ctl_call_sandbox(bus, "Saving its state", id, "Snapshot", &reply, &error, "a{sv}", 1, "name", "s", name);
        else
                r = ctl_call_sandbox(bus, "Saving its state", id, "Snapshot", &reply, &error, "a{sv}", 0);
        if (r >= 0)
                r = sd_bus_message_read(reply, "so", &snapshot, NULL);
        if (r >= 0 && !sandbox_id_valid(snapshot))
                r = -EBADMSG;
        if (r < 0)
                return ctl_fail(r, &error, "take a snapshot of sandbox %s", id);
        puts(snapshot);
        return fflush(stdout) == 0 ? 0 : -EIO;
}

static int get_one(sd_bus *bus, const char *id, json_object **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *path;

        int r = ctl_call(bus, "Asking cubed", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "GetSnapshot", &reply, &error, "s", id);
        if (r >= 0)
                r = sd_bus_message_read(reply, "o", &path);
        if (r >= 0)
                r = properties_get(bus, path, CUBE_BUS_SNAPSHOT, ret, &error);
        return r < 0 ? ctl_fail(r, &error, "look at snapshot %s", id) : 0;
}

static int show(char **ids) {
        json_object *all = NULL, *o;
        bool first = true;
        sd_bus *bus;

        int r = ctl_connect(&bus);
        if (r < 0)
                return r;
        all = json_object_new_array();
        r = all ? 0 : -ENOMEM;

        for (; r >= 0 && *ids; ids++) {
                r = get_one(bus, *ids, &o);
                if (r < 0)
                        break;
                if (ctl_options.json != JSON_OFF)
                        r = json_object_array_add(all, properties_select(o));
                else {
                        fputs(first ? "" : "\n", stdout);
                        r = properties_print(o);
                }
                first = false;
                json_object_put(o);
        }
        if (r >= 0 && ctl_options.json != JSON_OFF)
                r = json_print(json_object_get(all));
        json_object_put(all);
        return r;
}

static int remove_each(char **ids) {
        int result = EXIT_SUCCESS;
        sd_bus *bus;

        int r = ctl_connect(&bus);
        if (r < 0)
                return r;
        for (; *ids; ids++) {
                _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
                r = ctl_call(bus, "Removing the snapshot", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "RemoveSnapshot", NULL, &error,
                             "s", *ids);
                if (r < 0) {
                        ctl_fail(r, &error, "remove snapshot %s", *ids);
                        result = EXIT_FAILURE;
                }
        }
        return result;
}

static int parse(int argc, char **argv, SnapshotOptions *o) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "name", required_argument, NULL, SNAPSHOT_NAME },
                { "sandbox", required_argument, NULL, SNAPSHOT_SANDBOX },
                { "kind", required_argument, NULL, SNAPSHOT_KIND },
                {},
        };
        int c, r = 0;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                if (c == SNAPSHOT_NAME)
                        o->name = optarg;
                else if (c == SNAPSHOT_SANDBOX)
                        o->sandbox = optarg;
                else if (c == SNAPSHOT_KIND)
                        o->kind = optarg;
                else
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        if (o->name && !template_name_valid(o->name))
                return ctl_usage("--name=%s is not a name: letters, digits and . _ -, at most 63.", o->name);
        return o->sandbox ? ctl_check_id(o->sandbox) : 0;
}

static int misplaced(const SnapshotOptions *o, bool name, bool filters) {
        if (o->name && !name)
                return ctl_usage("--name= is for a snapshot that is being taken.");
        if ((o->sandbox || o->kind) && !filters)
                return ctl_usage("--sandbox= and --kind= are for lists.");
        return 0;
}

int verb_snapshot(int argc, char **argv) {
        SnapshotOptions o = {};

        int r = parse(argc, argv, &o);
        if (r < 0)
                return r;
        const char *word = optind < argc ? argv[optind] : "list";
        char **arguments = argv + optind + 1;
        bool is_list = streq(word, "list"), is_show = streq(word, "show"), is_rm = streq(word, "rm");

        r = misplaced(&o, !is_list && !is_show && !is_rm, is_list);
        if (r >= 0)
                r = is_show || is_rm ? ctl_check_arguments(argc, argv, 2, -1) : ctl_check_arguments(argc, argv, 0, 1);
        if (r < 0)
                return r;
        if (is_list)
                return list(&o);
        if (is_show)
                return show(arguments);
        if (is_rm)
                return remove_each(arguments);
        if (!sandbox_id_valid(word))
                return ctl_usage("'snapshot %s' is not known: the id of a sandbox, list, show or rm.", word);
        return take(word, o.name);
}

int verb_snapshots(int argc, char **argv) {
        SnapshotOptions o = {};

        int r = parse(argc, argv, &o);
        if (r >= 0)
                r = misplaced(&o, false, true);
        if (r >= 0)
                r = ctl_check_arguments(argc, argv, 0, 0);
        return r < 0 ? r : list(&o);
}

int verb_checkpoints(int argc, char **argv) {
        SnapshotOptions o = {};

        int r = parse(argc, argv, &o);
        if (r >= 0)
                r = misplaced(&o, false, false);
        if (r >= 0)
                r = ctl_check_arguments(argc, argv, 1, 1);
        if (r >= 0)
                r = ctl_check_id(argv[optind]);
        return r < 0 ? r : list_checkpoints(argv[optind]);
}
