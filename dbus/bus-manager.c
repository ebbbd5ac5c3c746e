/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "daemon/host-network.h"
#include "dbus/bus-objects.h"

static int method_get_sandbox(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        char path[CUBE_BUS_PATH_MAX];
        const char *id;
        uid_t actor;

        int r = sd_bus_message_read(m, "s", &id);
        if (r < 0)
                return r;
        if (!sandbox_id_valid(id))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "'%s' is not a sandbox id: 12 to 20 of a-z and 0-9, a letter first", id);

        /* Whom it does not concern is not told that there is one. */
        const Sandbox *s = manager_find_sandbox(bus_front->manager, id);
        if (s) {
                const BusAccess access = {
                        .action = POLKIT_LIST, .owner = s->owner_uid, .key = "sandbox", .value = id, .quiet = true,
                };
                r = bus_authorize(m, &access, &actor, error);
                if (r == 0)
                        return 1;
        }
        if (!s || r < 0) {
                sd_bus_error_free(error);
                return sd_bus_error_setf(error, BUS_ERROR_NO_SUCH_SANDBOX,
                                         "No sandbox '%s'; 'cubectl list' shows yours", id);
        }
        return sd_bus_reply_method_return(m, "o", bus_path_put(path, CUBE_BUS_PATH_SANDBOX, id));
}

static int method_get_sandbox_by_pid(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        char path[CUBE_BUS_PATH_MAX];
        uint32_t pid;
        uid_t actor;

        int r = sd_bus_message_read(m, "u", &pid);
        if (r < 0)
                return r;

        const Sandbox *s = pid > 0 ? manager_find_sandbox_by_pid(bus_front->manager, (pid_t) pid) : NULL;
        if (s) {
                const BusAccess access = {
                        .action = POLKIT_LIST, .owner = s->owner_uid, .key = "sandbox", .value = s->id, .quiet = true,
                };
                r = bus_authorize(m, &access, &actor, error);
                if (r == 0)
                        return 1;
        }
        if (!s || r < 0) {
                sd_bus_error_free(error);
                return sd_bus_error_setf(error, BUS_ERROR_NO_SUCH_SANDBOX, "Process %u belongs to no sandbox", pid);
        }
        return sd_bus_reply_method_return(m, "o", bus_path_put(path, CUBE_BUS_PATH_SANDBOX, s->id));
}

int bus_may_list_all(sd_bus_message *m, uid_t *ret_actor, bool *ret_all) {
        _cleanup_bus_error_ sd_bus_error ignored = SD_BUS_ERROR_NULL;
        const BusAccess access = { .action = POLKIT_LIST, .owner = BUS_OWNER_NONE, .quiet = true };

        int r = bus_authorize(m, &access, ret_actor, &ignored);
        if (r == 0)
                return 0;
        if (r == -ENOMEM)
                return r;
        *ret_all = r > 0;
        return 1;
}

static int append_sandbox(sd_bus_message *reply, const Sandbox *s) {
        char path[CUBE_BUS_PATH_MAX];
        return sd_bus_message_append(reply, "(ssusto)", s->id, sandbox_state_to_string(s->state),
                                     (uint32_t) s->owner_uid, strempty(s->template_name), s->created_usec,
                                     bus_path_put(path, CUBE_BUS_PATH_SANDBOX, s->id));
}

static int method_list_sandboxes(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_bus_message_ sd_bus_message *reply = NULL;
        const Manager *manager = bus_front->manager;
        bool all = false;
        uid_t actor;

        int r = bus_may_list_all(m, &actor, &all);
        if (r <= 0)
                return r < 0 ? r : 1;

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(ssusto)");
        for (size_t i = 0; r >= 0 && i < manager->n_sandboxes; i++)
                if (all || manager->sandboxes[i]->owner_uid == actor)
                        r = append_sandbox(reply, manager->sandboxes[i]);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

static int method_get_template(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        char path[CUBE_BUS_PATH_MAX];
        const char *ref;
        Template *t;
        uid_t actor;

        int r = sd_bus_message_read(m, "s", &ref);
        if (r < 0)
                return r;
        r = bus_actor(m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_find_template(actor, NULL, ref, &t, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, "o", bus_path_put(path, CUBE_BUS_PATH_TEMPLATE, t->id));
}

static int append_template(sd_bus_message *reply, const Template *t) {
        char path[CUBE_BUS_PATH_MAX], name[BUS_TEMPLATE_NAME_MAX];
        uint64_t size = 0;

        for (size_t i = 0; i < _TEMPLATE_FILE_MAX; i++)
                size += t->file_bytes[i];
        return sd_bus_message_append(reply, "(ssutto)", t->id, bus_template_name(t, name), (uint32_t) t->owner_uid,
                                     t->created_usec, size, bus_path_put(path, CUBE_BUS_PATH_TEMPLATE, t->id));
}

static int method_list_templates(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_bus_message_ sd_bus_message *reply = NULL;
        const TemplateStore *store = bus_front->manager->templates;
        uid_t actor;

        int r = bus_actor(m, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(ssutto)");
        for (size_t i = 0; r >= 0 && i < store->n_templates; i++)
                if (bus_template_visible(store->templates[i], actor, NULL))
                        r = append_template(reply, store->templates[i]);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

static int method_get_job(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        char path[CUBE_BUS_PATH_MAX];
        const char *id;

        int r = sd_bus_message_read(m, "s", &id);
        if (r < 0)
                return r;

        const Job *j = manager_find_job(bus_front->manager, id);
        if (!j)
                return sd_bus_error_setf(error, BUS_ERROR_NO_SUCH_JOB, "No job '%s'", id);
        return sd_bus_reply_method_return(m, "o", bus_path_put(path, CUBE_BUS_PATH_JOB, j->id));
}

/* A reply that is being written. */
typedef struct CheckReply {
        sd_bus_message *call, *message;
        int r;
} CheckReply;

static CheckReply *check_reply_free(CheckReply *c) {
        if (!c)
                return NULL;
        sd_bus_message_unref(c->message);
        sd_bus_message_unref(c->call);
        free(c);
        return NULL;
}
DEFINE_CLEANUP(CheckReply *, check_reply_free);

static void append_check(void *userdata, const char *name, CheckLevel level, const char *finding, const char *advice) {
        static const char *const levels[] = {
                [CHECK_OK] = "ok", [CHECK_WARNING] = "warning", [CHECK_FAILED] = "failed",
        };
        CheckReply *c = userdata;

        if (c->r >= 0)
                c->r = sd_bus_message_append(c->message, "(ssss)", name, levels[level], strempty(finding),
                                             strempty(advice));
}

static void on_checked(void *userdata) {
        _cleanup_(check_reply_freep) CheckReply *c = userdata;

        int r = c->r < 0 ? c->r : sd_bus_message_close_container(c->message);
        if (r >= 0)
                r = sd_bus_send(NULL, c->message, NULL);
        if (r < 0)
                (void) sd_bus_reply_method_errno(c->call, r, NULL);
}

static int method_check_host(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(check_reply_freep) CheckReply *c = new0(CheckReply, 1);

        if (!c)
                return -ENOMEM;
        c->call = sd_bus_message_ref(m);
        int r = sd_bus_message_new_method_return(m, &c->message);
        if (r >= 0)
                r = sd_bus_message_open_container(c->message, 'a', "(ssss)");
        if (r >= 0)
                r = manager_check_host(bus_front->manager, append_check, on_checked, c);
        if (r < 0)
                return r;
        (void) TAKE_PTR(c);
        return 1;
}

static int method_reload(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const BusAccess access = { .action = POLKIT_MANAGE, .owner = BUS_OWNER_NONE };
        uid_t actor;

        int r = bus_authorize(m, &access, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = manager_reload(bus_front->manager, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, NULL);
}

static int method_reset_loop_max(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const BusAccess access = { .action = POLKIT_MANAGE, .owner = BUS_OWNER_NONE };
        uid_t actor;

        int r = bus_authorize(m, &access, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        (void) manager_loop_max_usec(bus_front->manager, true);
        return sd_bus_reply_method_return(m, NULL);
}

static int property_get_version(sd_bus *bus, const char *path, const char *interface, const char *property,
                                sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", CUBED_VERSION);
}

static int property_get_n_sandboxes(sd_bus *bus, const char *path, const char *interface, const char *property,
                                    sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "u", (uint32_t) bus_front->manager->n_sandboxes);
}

static int property_get_loop_max(sd_bus *bus, const char *path, const char *interface, const char *property,
                                 sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "t", manager_loop_max_usec(bus_front->manager, false));
}

static int property_get_network(sd_bus *bus, const char *path, const char *interface, const char *property,
                                sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        HostNetworkInfo i;

        host_network_get_info(bus_front->manager->network, &i);
        const char *text = streq(property, "Network4") ? i.net4 : streq(property, "Network6") ? i.net6 :
                streq(property, "Uplink") ? i.uplink : i.error;
        return sd_bus_message_append(reply, "s", strempty(text));
}

static int property_get_network_number(sd_bus *bus, const char *path, const char *interface, const char *property,
                                       sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        HostNetworkInfo i;

        host_network_get_info(bus_front->manager->network, &i);
        return sd_bus_message_append(reply, "u", streq(property, "NetworkMTU") ? i.mtu : i.n_free_slots);
}

const sd_bus_vtable bus_manager_vtable[] = {
        SD_BUS_VTABLE_START(0),

        SD_BUS_METHOD_WITH_ARGS("CreateSandbox", SD_BUS_ARGS("s", source, "a{sv}", options),
                                SD_BUS_RESULT("s", id, "o", sandbox), bus_method_create_sandbox,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("UnbindSandboxes", SD_BUS_ARGS("as", ids), SD_BUS_NO_RESULT, bus_method_unbind_sandboxes,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetSandbox", SD_BUS_ARGS("s", id), SD_BUS_RESULT("o", sandbox), method_get_sandbox,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetSandboxByPID", SD_BUS_ARGS("u", pid), SD_BUS_RESULT("o", sandbox),
                                method_get_sandbox_by_pid, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ListSandboxes", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ssusto)", sandboxes),
                                method_list_sandboxes, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("FindSandboxes", SD_BUS_ARGS("a{sv}", filters),
                                SD_BUS_RESULT("a(oa{sv})", sandboxes, "s", next), bus_method_find_sandboxes,
                                SD_BUS_VTABLE_UNPRIVILEGED),

        SD_BUS_METHOD_WITH_ARGS("BuildTemplate", SD_BUS_ARGS("s", name, "h", rootfs, "a{sv}", options),
                                SD_BUS_RESULT("o", job), bus_method_build_template, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("DeriveTemplate", SD_BUS_ARGS("s", name, "s", source, "a{sv}", options),
                                SD_BUS_RESULT("o", job), bus_method_derive_template, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetTemplate", SD_BUS_ARGS("s", name), SD_BUS_RESULT("o", template),
                                method_get_template, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ListTemplates", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ssutto)", templates),
                                method_list_templates, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("FindTemplates", SD_BUS_ARGS("a{sv}", filters),
                                SD_BUS_RESULT("a(oa{sv})", templates, "s", next), bus_method_find_templates,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ListTemplateNames", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(sus)", names),
                                bus_method_list_template_names, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("AliasTemplate", SD_BUS_ARGS("s", alias, "s", name), SD_BUS_NO_RESULT,
                                bus_method_alias_template, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("RemoveTemplate", SD_BUS_ARGS("s", name), SD_BUS_NO_RESULT,
                                bus_method_remove_template, SD_BUS_VTABLE_UNPRIVILEGED),

        SD_BUS_METHOD_WITH_ARGS("ExportTemplate", SD_BUS_ARGS("s", name, "h", file), SD_BUS_RESULT("o", job),
                                bus_method_export_template, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ImportTemplate", SD_BUS_ARGS("s", name, "h", file, "a{sv}", options),
                                SD_BUS_RESULT("o", job), bus_method_import_template, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("CollectGarbage", SD_BUS_ARGS("a{sv}", options),
                                SD_BUS_RESULT("a(sst)", garbage, "s", note), bus_method_collect_garbage,
                                SD_BUS_VTABLE_UNPRIVILEGED),

        SD_BUS_METHOD_WITH_ARGS("ListSnapshots", SD_BUS_ARGS("a{sv}", filters),
                                SD_BUS_RESULT("a(" CUBE_BUS_SNAPSHOT_ITEM ")", snapshots), bus_method_list_snapshots,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("GetSnapshot", SD_BUS_ARGS("s", id), SD_BUS_RESULT("o", snapshot),
                                bus_method_get_snapshot, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("RemoveSnapshot", SD_BUS_ARGS("s", id), SD_BUS_NO_RESULT, bus_method_remove_snapshot,
                                SD_BUS_VTABLE_UNPRIVILEGED),

        SD_BUS_METHOD_WITH_ARGS("GetJob", SD_BUS_ARGS("s", id), SD_BUS_RESULT("o", job), method_get_job,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("CheckHost", SD_BUS_NO_ARGS, SD_BUS_RESULT("a(ssss)", findings), method_check_host,
                                SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("Reload", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, method_reload, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD_WITH_ARGS("ResetLoopMax", SD_BUS_NO_ARGS, SD_BUS_NO_RESULT, method_reset_loop_max,
                                SD_BUS_VTABLE_UNPRIVILEGED),

        SD_BUS_SIGNAL_WITH_ARGS("SandboxNew", SD_BUS_ARGS("s", id, "o", sandbox), 0),
        SD_BUS_SIGNAL_WITH_ARGS("SandboxRemoved", SD_BUS_ARGS("s", id, "s", reason, "u", status), 0),
        SD_BUS_SIGNAL_WITH_ARGS("TemplateNew", SD_BUS_ARGS("s", id, "o", template), 0),
        SD_BUS_SIGNAL_WITH_ARGS("TemplateRemoved", SD_BUS_ARGS("s", id, "o", template), 0),
        SD_BUS_SIGNAL_WITH_ARGS("SnapshotNew", SD_BUS_ARGS("s", id, "o", snapshot), 0),
        SD_BUS_SIGNAL_WITH_ARGS("SnapshotRemoved", SD_BUS_ARGS("s", id, "o", snapshot), 0),
        SD_BUS_SIGNAL_WITH_ARGS("JobNew", SD_BUS_ARGS("s", id, "o", job), 0),
        SD_BUS_SIGNAL_WITH_ARGS("JobRemoved", SD_BUS_ARGS("s", id, "o", job, "s", result), 0),

        SD_BUS_PROPERTY("Version", "s", property_get_version, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("NSandboxes", "u", property_get_n_sandboxes, 0, 0),
        /* Of the sandboxes; "" and 0: there is none. NetworkError says why there is no network. */
        SD_BUS_PROPERTY("Network4", "s", property_get_network, 0, 0),
        SD_BUS_PROPERTY("Network6", "s", property_get_network, 0, 0),
        SD_BUS_PROPERTY("Uplink", "s", property_get_network, 0, 0),
        SD_BUS_PROPERTY("NetworkError", "s", property_get_network, 0, 0),
        SD_BUS_PROPERTY("NetworkMTU", "u", property_get_network_number, 0, 0),
        SD_BUS_PROPERTY("NetworkFreeSlots", "u", property_get_network_number, 0, 0),
        SD_BUS_PROPERTY("LoopMaxUSec", "t", property_get_loop_max, 0, 0),
        SD_BUS_VTABLE_END
};
