/* SPDX-License-Identifier: Apache-2.0 */

/* Pause, Snapshot, Fork and Rollback: the calls that save a sandbox's state or go back to it.
 * Each is kept until it is done, and answered once. */

#include "base/parse.h"
#include "daemon/audit.h"
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"
#include "dbus/bus-policy.h"
#include "dbus/bus-tenant.h"

/* Each is a VMM to be started at once; how many there may be is the quota's business. */
#define FORKS_MAX 128U

static void on_done(Sandbox *s, const sd_bus_error *error, void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;

        if (sd_bus_error_is_set(error))
                bus_reply_error(call, error, 0);
        else
                (void) sd_bus_reply_method_return(call, NULL);
}

int bus_method_pause(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        bool memory = true;
        uid_t actor;
        const BusOption options[] = {
                { "memory", BUS_OPTION_BOOL, &memory, 0 },
        };

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r < 0)
                return r;
        audit_asked(s->manager->audit, s, actor, "pause");
        return bus_keep_call(m, sandbox_pause(s, memory, on_done, sd_bus_message_ref(m), error));
}

static void on_snapshot(Sandbox *s, const sd_bus_error *error, Snapshot *snapshot, void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;
        char path[CUBE_BUS_PATH_MAX];

        if (sd_bus_error_is_set(error))
                bus_reply_error(call, error, 0);
        else
                (void) sd_bus_reply_method_return(call, "so", snapshot->id,
                                                  bus_path_put(path, CUBE_BUS_PATH_SNAPSHOT, snapshot->id));
}

int bus_method_snapshot(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        const char *name = NULL, *tenant = NULL;
        uid_t actor;
        const BusOption options[] = {
                { "name", BUS_OPTION_STRING, &name, 0 },
                { "tenant", BUS_OPTION_STRING, &tenant, 0 },
        };

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r >= 0)
                r = bus_tenant_check_sandbox(actor, tenant, s, error);
        if (r < 0)
                return r;
        if (name && !template_name_valid(name))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "'%s' is not a name of a snapshot: letters, digits and . _ -, at most 63", name);
        audit_asked(s->manager->audit, s, actor, "snapshot");
        return bus_keep_call(m, sandbox_snapshot(s, SNAPSHOT_USER, name, on_snapshot, sd_bus_message_ref(m), error));
}

static int append_fork(sd_bus_message *reply, const ForkResult *f) {
        char path[CUBE_BUS_PATH_MAX];

        if (f->sandbox)
                return sd_bus_message_append(reply, "(" CUBE_BUS_FORKED ")", 1, f->sandbox->id,
                                             bus_path_put(path, CUBE_BUS_PATH_SANDBOX, f->sandbox->id), "", "");
        return sd_bus_message_append(reply, "(" CUBE_BUS_FORKED ")", 0, "", "/",
                                     f->error.name ? f->error.name : BUS_ERROR_INTERNAL, strempty(f->error.message));
}

/* It may have left before the last of them was there to be ended. */
static int check_client(const ForkResult *results, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (results[i].sandbox && results[i].sandbox->bound_client)
                        return bus_check_client(bus_front->manager->bus, results[i].sandbox->bound_client);
        return 0;
}

static void on_forked(Sandbox *s, const sd_bus_error *error, const ForkResult *results, size_t n, void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata, *reply = NULL;
        int r = -EIO;

        if (!sd_bus_error_is_set(error)) {
                r = sd_bus_message_new_method_return(call, &reply);
                if (r >= 0)
                        r = sd_bus_message_open_container(reply, 'a', "(" CUBE_BUS_FORKED ")");
                for (size_t i = 0; r >= 0 && i < n; i++)
                        r = append_fork(reply, &results[i]);
                if (r >= 0)
                        r = sd_bus_message_close_container(reply);
                if (r >= 0)
                        r = check_client(results, n);
                if (r >= 0)
                        r = sd_bus_send(NULL, reply, NULL);
        }
        if (r < 0)
                bus_reply_error(call, error, r);
}

/* To its owner it is a create; whoever is let into the sandboxes of others may do this with them, too. */
static int authorize_fork(sd_bus_message *m, const Sandbox *s, uid_t *ret_actor, sd_bus_error *error) {
        char source[sizeof("sandbox:") + sizeof(s->id)];

        int r = bus_actor(m, ret_actor, error);
        if (r <= 0)
                return r;
        if (*ret_actor != s->owner_uid)
                return bus_authorize_sandbox(m, s, POLKIT_MANAGE, ret_actor, error);

        strcpy(stpcpy(source, "sandbox:"), s->id);
        const BusAccess access = {
                .action = POLKIT_CREATE, .owner = BUS_OWNER_NONE, .key = "template", .value = source,
        };
        return bus_authorize(m, &access, ret_actor, error);
}

int bus_method_fork(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(loaded_policy_unrefp) LoadedPolicy *policy = NULL;
        _cleanup_bus_policy_ BusPolicy own_policy = {};
        _cleanup_strv_ char **labels = NULL;
        const char *on_timeout = NULL, *checkpoint = NULL, *tenant = NULL;
        Sandbox *s = userdata;
        uid_t actor;
        uint32_t n;
        uint64_t checkpoint_usec = 0;
        bool bind_client = false;
        /* Whoever asks: what is in there is its tenant's, and so are the copies. */
        SandboxSpec spec = {
                .owner_uid = s->owner_uid, .tenant = s->tenant, .timeout_usec = s->timeout_usec, .idle_timeout_usec = s->idle_timeout_usec,
                .on_timeout = s->on_timeout, .auto_resume = s->auto_resume, .checkpoint_usec = s->checkpoint_usec,
        };
        const BusOption options[] = {
                { "memory", BUS_OPTION_U64, &spec.mem_bytes, BUS_OPTION_NONZERO },
                { "timeout", BUS_OPTION_U64, &spec.timeout_usec, BUS_OPTION_NONZERO },
                { "idle-timeout", BUS_OPTION_U64, &spec.idle_timeout_usec, BUS_OPTION_NONZERO },
                { "on-timeout", BUS_OPTION_STRING, &on_timeout, 0 },
                { "auto-resume", BUS_OPTION_BOOL, &spec.auto_resume, 0 },
                { "checkpoint", BUS_OPTION_STRING, &checkpoint, 0 },
                { "checkpoint", BUS_OPTION_U64, &checkpoint_usec, BUS_OPTION_NONZERO },
                { "cpu-quota", BUS_OPTION_U64, &spec.cpu_quota_usec, BUS_OPTION_NONZERO },
                { "labels", BUS_OPTION_DICT, &labels, 0 },
                { "network-policy", BUS_OPTION_POLICY, &own_policy, 0 },
                { "tenant", BUS_OPTION_STRING, &tenant, 0 },
                { "bind-client", BUS_OPTION_BOOL, &bind_client, 0 },
                BUS_NETWORK_LIMITS(&spec.net_limits),
        };

        int r = authorize_fork(m, s, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "u", &n);
        if (r >= 0)
                r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r >= 0)
                r = bus_tenant_check_sandbox(actor, tenant, s, error);
        if (r >= 0)
                r = bus_spec_set(&spec, on_timeout, checkpoint, checkpoint_usec, error);
        if (r < 0)
                return r;
        if (n < 1 || n > FORKS_MAX)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "%u copies can't be made at once: 1 to %u", n,
                                         FORKS_MAX);
        /* Without one of their own the copies have that of the first one, which it was allowed to have. */
        const BusPolicyFor whom = { .actor = actor, .tenant = bus_tenant_of(s, actor), .key = "sandbox", .value = s->id };
        r = own_policy.given ? bus_policy_load(m, &whom, &own_policy.rules, &policy, error) : 1;
        if (r <= 0)
                return r < 0 ? r : 1;
        spec.policy = policy;
        spec.labels = labels;
        spec.bound_client = bind_client ? sd_bus_message_get_sender(m) : NULL;
        audit_asked(s->manager->audit, s, actor, "fork");
        return bus_keep_call(m, sandbox_fork(s, n, &spec, on_forked, sd_bus_message_ref(m), error));
}

int bus_method_rollback(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sandbox *s = userdata;
        const char *id;
        uid_t actor;

        int r = bus_authorize_sandbox(m, s, POLKIT_MANAGE, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        r = sd_bus_message_read(m, "s", &id);
        if (r >= 0)
                r = bus_options_read(m, NULL, 0, error);
        if (r >= 0)
                r = sandbox_check_running(s, error);
        if (r < 0)
                return r;

        /* Its snapshots are for those who may roll it back, whosoever they are. */
        Snapshot *snapshot = snapshot_store_find(s->manager->snapshots, id);
        if (!snapshot || !bus_snapshot_kind(snapshot) || !streq(strempty(snapshot->sandbox_id), s->id))
                return sd_bus_error_setf(error, BUS_ERROR_NO_SUCH_SNAPSHOT,
                                         "Sandbox %s has no snapshot '%s'; 'cubectl snapshot list --sandbox=%s' shows what "
                                         "it has", s->id, id, s->id);
        audit_asked(s->manager->audit, s, actor, "rollback");
        return bus_keep_call(m, sandbox_rollback(s, snapshot, on_done, sd_bus_message_ref(m), error));
}
