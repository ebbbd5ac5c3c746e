/* SPDX-License-Identifier: Apache-2.0 */

/* CreateSandbox. The call is kept until the sandbox runs or has failed. A second call of the same
 * tenant with the same request-id joins the first one, or is answered at once when that is done.
 *
 * And UnbindSandboxes, by which a client that has passed on what it made lets it outlive itself. */

#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"
#include "dbus/bus-policy.h"
#include "dbus/bus-tenant.h"

#define REQUEST_ID_MAX 128U
/* Each one halts the guest for a moment. */
#define CHECKPOINT_USEC_MIN USEC_PER_SEC

typedef struct Creation {
        Sandbox *sandbox;
        sd_bus_message **calls;
        size_t n_calls;
        struct Creation *next;
} Creation;

static Creation *creations = NULL;

static int creation_add_call(Creation *c, sd_bus_message *m) {
        sd_bus_message **l = realloc(c->calls, (c->n_calls + 1) * sizeof(*l));
        if (!l)
                return -ENOMEM;

        c->calls = l;
        c->calls[c->n_calls++] = sd_bus_message_ref(m);
        return 0;
}

static Creation *creation_free(Creation *c) {
        Creation **at = &creations;
        while (*at && *at != c)
                at = &(*at)->next;
        if (*at)
                *at = c->next;

        for (size_t i = 0; i < c->n_calls; i++)
                sd_bus_message_unref(c->calls[i]);
        free(c->calls);
        free(c);
        return NULL;
}

static int reply_created(sd_bus_message *call, const Sandbox *s) {
        char path[CUBE_BUS_PATH_MAX];
        return sd_bus_reply_method_return(call, "so", s->id, bus_path_put(path, CUBE_BUS_PATH_SANDBOX, s->id));
}

static void on_created(Sandbox *s, const sd_bus_error *error, void *userdata) {
        Creation *c = userdata;

        for (size_t i = 0; i < c->n_calls; i++)
                if (sd_bus_error_is_set(error))
                        (void) sd_bus_reply_method_error(c->calls[i], error);
                else
                        (void) reply_created(c->calls[i], s);
        creation_free(c);
}

/* 1 when the call is answered or will be with the first one. */
static int join_request(sd_bus_message *m, const SandboxSpec *spec) {
        Sandbox *s = manager_find_sandbox_by_request(bus_front->manager, spec->owner_uid, spec->tenant, spec->request_id);
        if (!s)
                return 0;

        for (Creation *c = creations; c; c = c->next)
                if (c->sandbox == s) {
                        int r = creation_add_call(c, m);
                        return r < 0 ? r : 1;
                }
        int r = reply_created(m, s);
        return r < 0 ? r : 1;
}

static bool hostname_valid(const char *s) {
        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.");
        return n > 0 && n <= 63 && s[n] == 0 && !strchr("-.", s[0]) && !strchr("-.", s[n - 1]) && !strstr(s, "..");
}

/* A template's own snapshot is but another name of the template. */
static int find_saved(const char *id, SandboxSpec *spec, sd_bus_error *error) {
        int r = bus_find_snapshot(spec->owner_uid, bus_tenant_scope(spec->owner_uid, spec->tenant), id, &spec->snapshot, error);
        if (r < 0)
                return r;

        spec->template = bus_template_by_id(bus_front->manager, spec->snapshot->template_id);
        if (!spec->template)
                return sd_bus_error_setf(error, BUS_ERROR_SNAPSHOT_INVALID, "Template %s, on which snapshot %s stands, is gone",
                                         spec->snapshot->template_id, id);
        if (spec->snapshot->kind == SNAPSHOT_TEMPLATE)
                spec->snapshot = NULL;
        return 0;
}

static int find_source(const char *source, SandboxSpec *spec, sd_bus_error *error) {
        const char *ref = startswith(source, "template:"), *snapshot = startswith(source, "snapshot:");

        if (snapshot)
                return find_saved(snapshot, spec, error);
        if (!ref)
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "Source '%s' names no kind: it must be template:NAME[:TAG], template:ID or "
                                         "snapshot:ID",
                                         source);
        /* "template:" alone is what the configuration names. */
        if (!*ref)
                ref = strempty(bus_front->manager->config.default_template);
        return bus_find_template(spec->owner_uid, bus_tenant_scope(spec->owner_uid, spec->tenant), ref, &spec->template, error);
}

int bus_spec_set(SandboxSpec *spec, const char *on_timeout, const char *checkpoint, uint64_t checkpoint_usec,
                 sd_bus_error *error) {
        if (on_timeout) {
                spec->on_timeout = sandbox_end_from_string(on_timeout);
                if (spec->on_timeout < 0)
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                                 "Option 'on-timeout' is '%s', but takes kill, pause or pause-disk",
                                                 on_timeout);
        }
        if (checkpoint) {
                if (!streq(checkpoint, "exec"))
                        return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                                 "Option 'checkpoint' is '%s', but takes exec, or an interval as a number",
                                                 checkpoint);
                spec->checkpoint_usec = UINT64_MAX;
        } else if (checkpoint_usec > 0) {
                if (checkpoint_usec < CHECKPOINT_USEC_MIN || checkpoint_usec == UINT64_MAX)
                        return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT,
                                                "Option 'checkpoint' is an interval of less than a second, or without "
                                                "an end");
                spec->checkpoint_usec = checkpoint_usec;
        }
        return 0;
}

static int check_strings(const SandboxSpec *spec, sd_bus_error *error) {
        if (spec->hostname && !hostname_valid(spec->hostname))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT, "Host name '%s' is not valid",
                                         spec->hostname);
        if (spec->request_id && (!*spec->request_id || strlen(spec->request_id) > REQUEST_ID_MAX))
                return sd_bus_error_setf(error, BUS_ERROR_INVALID_ARGUMENT,
                                         "A request-id has 1 to %u characters", REQUEST_ID_MAX);
        return 0;
}

/* Its own, or that of a template that is not root's: whoever made that may have been allowed special ranges then, and no
 * longer be. *ret is NULL where the template alone decides. Returns as bus_policy_load(). */
static int find_policy(sd_bus_message *m, const SandboxSpec *spec, const BusPolicy *own, const char *source,
                       LoadedPolicy **ret, sd_bus_error *error) {
        const BusPolicyFor whom = { .actor = spec->owner_uid, .tenant = spec->tenant, .key = "template", .value = source };
        const Template *t = spec->template;

        if (own->given)
                return bus_policy_load(m, &whom, &own->rules, ret, error);
        if (t->has_policy && t->owner_uid != 0)
                return bus_policy_load(m, &whom, &t->policy, ret, error);
        *ret = NULL;
        return 1;
}

static int start_create(sd_bus_message *m, const SandboxSpec *spec, sd_bus_error *error) {
        Sandbox *s = NULL;

        Creation *c = new0(Creation, 1);
        if (!c)
                return -ENOMEM;
        int r = creation_add_call(c, m);
        if (r >= 0)
                r = sandbox_create(bus_front->manager, spec, on_created, c, &s, error);
        if (r < 0) {
                creation_free(c);
                return r;
        }

        c->sandbox = s;
        c->next = creations;
        creations = c;

        /* The message may have waited for polkit while its sender left, and that was told before
         * there was a sandbox to end. */
        if (spec->bound_client)
                r = bus_check_client(bus_front->manager->bus, spec->bound_client);
        if (r < 0)
                (void) sandbox_kill(s, VMM_EXIT_KILLED, NULL, NULL, NULL);
        return 1;
}

int bus_method_create_sandbox(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(loaded_policy_unrefp) LoadedPolicy *policy = NULL;
        _cleanup_bus_policy_ BusPolicy own_policy = {};
        _cleanup_strv_ char **labels = NULL;
        SandboxSpec spec = { .on_timeout = (SandboxEnd) bus_front->manager->config.default_on_timeout };
        const char *source, *on_timeout = NULL, *checkpoint = NULL;
        uint64_t checkpoint_usec = 0;
        bool bind_client = false;
        const BusOption options[] = {
                { "memory", BUS_OPTION_U64, &spec.mem_bytes, BUS_OPTION_NONZERO },
                { "cpus", BUS_OPTION_U32, &spec.cpus, BUS_OPTION_NONZERO },
                { "disk", BUS_OPTION_U64, &spec.disk_bytes, BUS_OPTION_NONZERO },
                { "timeout", BUS_OPTION_U64, &spec.timeout_usec, BUS_OPTION_NONZERO },
                { "idle-timeout", BUS_OPTION_U64, &spec.idle_timeout_usec, BUS_OPTION_NONZERO },
                { "on-timeout", BUS_OPTION_STRING, &on_timeout, 0 },
                { "auto-resume", BUS_OPTION_BOOL, &spec.auto_resume, 0 },
                { "checkpoint", BUS_OPTION_STRING, &checkpoint, 0 },
                { "checkpoint", BUS_OPTION_U64, &checkpoint_usec, BUS_OPTION_NONZERO },
                { "cpu-quota", BUS_OPTION_U64, &spec.cpu_quota_usec, BUS_OPTION_NONZERO },
                { "hostname", BUS_OPTION_STRING, &spec.hostname, 0 },
                { "request-id", BUS_OPTION_STRING, &spec.request_id, 0 },
                { "tenant", BUS_OPTION_STRING, &spec.tenant, 0 },
                { "labels", BUS_OPTION_DICT, &labels, 0 },
                { "bind-client", BUS_OPTION_BOOL, &bind_client, 0 },
                { "network-policy", BUS_OPTION_POLICY, &own_policy, 0 },
                BUS_NETWORK_LIMITS(&spec.net_limits),
        };

        int r = sd_bus_message_read(m, "s", &source);
        if (r < 0)
                return r;
        const BusAccess access = {
                .action = POLKIT_CREATE, .owner = BUS_OWNER_NONE, .key = "template", .value = source,
        };
        r = bus_authorize(m, &access, &spec.owner_uid, error);
        if (r <= 0)
                return r < 0 ? r : 1;

        r = bus_options_read(m, options, ELEMENTSOF(options), error);
        if (r >= 0)
                r = bus_spec_set(&spec, on_timeout, checkpoint, checkpoint_usec, error);
        if (r >= 0)
                r = bus_tenant_check(spec.owner_uid, spec.tenant, error);
        if (r >= 0)
                r = check_strings(&spec, error);
        if (r < 0)
                return r;
        spec.labels = labels;
        spec.bound_client = bind_client ? sd_bus_message_get_sender(m) : NULL;

        if (spec.request_id) {
                r = join_request(m, &spec);
                if (r != 0)
                        return r;
        }
        r = find_source(source, &spec, error);
        if (r >= 0)
                r = find_policy(m, &spec, &own_policy, source, &policy, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        spec.policy = policy;
        return start_create(m, &spec, error);
}

void bus_unbind(Sandbox *s, sd_bus_message *m) {
        if (s->bound_client && streq(s->bound_client, strempty(sd_bus_message_get_sender(m))))
                sandbox_unbind(s);
}

/* What is of no other client's, or gone, is passed over: nothing of it is told. */
int bus_method_unbind_sandboxes(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_strv_ char **ids = NULL;

        int r = bus_read_strings(m, &ids, error);
        if (r < 0)
                return r;
        for (char **id = ids; id && *id; id++) {
                Sandbox *s = manager_find_sandbox(bus_front->manager, *id);
                if (s)
                        bus_unbind(s, m);
        }
        return sd_bus_reply_method_return(m, NULL);
}
