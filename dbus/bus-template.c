/* SPDX-License-Identifier: Apache-2.0 */
#include "dbus/bus-objects.h"
#include "dbus/bus-options.h"
#include "dbus/bus-policy.h"
#include "dbus/bus-tenant.h"

/* The last of the options of a build. */
#define ROOT_OPTIONS 8U

/* What a build without a guest can't do is refused: it would not be what was asked for. */
static int check_cold(const TemplateWarmSpec *warm, const BusPolicy *build_policy, sd_bus_error *error) {
        if (warm->n_copies > 0 || warm->setup || warm->n_steps > 0 || warm->start || warm->ready || build_policy->given)
                return sd_bus_error_set(error, BUS_ERROR_INVALID_ARGUMENT,
                                        "With warm=false nothing is run in a guest, so copy, setup, steps, start, ready and "
                                        "build-network-policy don't go with it");
        return 0;
}

/* *ret is NULL when it was not given. Returns as bus_policy_load(). */
static int load_given(sd_bus_message *m, const BusPolicyFor *whom, const BusPolicy *p, LoadedPolicy **ret, sd_bus_error *error) {
        *ret = NULL;
        return p->given ? bus_policy_load(m, whom, &p->rules, ret, error) : 1;
}

static void set_defaults(const Config *config, TemplateBuildParams *params) {
        params->mem_bytes = config->default_mem_bytes;
        params->cpus = config->default_cpus;
        params->disk_bytes = config->default_disk_bytes;
        params->kernel_path = config->kernel_path;
}

/* What a template on another one is to be like, where nothing was said. A name is one of whose it is to be. */
static int set_base(const char *source, TemplateBuildParams *params, sd_bus_error *error) {
        Template *t;

        int r = bus_find_template(params->owner_uid, params->tenant, source, &t, error);
        if (r < 0)
                return r;
        params->base = t;
        if (params->mem_bytes == 0)
                params->mem_bytes = t->mem_bytes;
        if (params->cpus == 0)
                params->cpus = t->cpus;
        params->disk_bytes = t->disk_bytes;
        params->cmdline = t->cmdline;
        return 0;
}

/* What a template below had started is started anew, since it runs in that one's memory alone. */
static void set_start_of_base(const Template *t, TemplateWarmSpec *warm) {
        if (warm->start || warm->no_start || !t->start.command)
                return;
        warm->start = t->start.command;
        if (warm->ready || !t->start.ready)
                return;
        warm->ready = t->start.ready;
        if (warm->ready_timeout_usec == 0)
                warm->ready_timeout_usec = t->start.ready_timeout_usec;
}

/* What a call to build asks for, as long as it is read. */
typedef struct BuildCall {
        TemplateBuildParams params;
        TemplateWarmSpec warm;
        TemplateCopy copies[BUS_FILES_MAX];
        BusFiles files;
        BusSteps steps;
        char **setup, **env, **aliases;
        char *base, *tag;
        BusPolicy policy, build_policy;
        LoadedPolicy *loaded, *build_loaded;
        bool want_warm;
} BuildCall;

static void build_call_done(BuildCall *c) {
        bus_steps_done(&c->steps);
        strv_free(c->setup);
        strv_free(c->env);
        strv_free(c->aliases);
        free(c->base);
        free(c->tag);
        bus_policy_done(&c->policy);
        bus_policy_done(&c->build_policy);
        loaded_policy_unref(c->loaded);
        loaded_policy_unref(c->build_loaded);
}

static int read_build_options(sd_bus_message *m, BuildCall *c, bool on_another, sd_bus_error *error) {
        const BusOption options[] = {
                { "memory", BUS_OPTION_U64, &c->params.mem_bytes, BUS_OPTION_NONZERO },
                { "cpus", BUS_OPTION_U32, &c->params.cpus, BUS_OPTION_NONZERO },
                { "alias", BUS_OPTION_STRV, &c->aliases, 0 },
                { "timeout", BUS_OPTION_U64, &c->params.timeout_usec, BUS_OPTION_NONZERO },
                { "copy", BUS_OPTION_FILES, &c->files, 0 },
                { "steps", BUS_OPTION_STEPS, &c->steps, 0 },
                { "setup", BUS_OPTION_STRV, &c->setup, 0 },
                { "start", BUS_OPTION_STRING, &c->warm.start, 0 },
                { "no-start", BUS_OPTION_BOOL, &c->warm.no_start, 0 },
                { "ready", BUS_OPTION_STRING, &c->warm.ready, 0 },
                { "ready-timeout", BUS_OPTION_U64, &c->warm.ready_timeout_usec, BUS_OPTION_NONZERO },
                { "env", BUS_OPTION_STRV, &c->env, 0 },
                { "user", BUS_OPTION_STRING, &c->warm.user, 0 },
                { "cwd", BUS_OPTION_STRING, &c->warm.cwd, 0 },
                { "network-policy", BUS_OPTION_POLICY, &c->policy, 0 },
                { "build-network-policy", BUS_OPTION_POLICY, &c->build_policy, 0 },
                { "tenant", BUS_OPTION_STRING, &c->params.tenant, 0 },
                { "public", BUS_OPTION_BOOL, &c->params.public, 0 },
                { "no-cache", BUS_OPTION_BOOL, &c->params.no_cache, 0 },
                { "force-step", BUS_OPTION_U32, &c->params.force_step, BUS_OPTION_NONZERO },
                /* What a template below has settled. */
                { "image", BUS_OPTION_STRING, &c->params.image, 0 },
                { "kernel", BUS_OPTION_FD, &c->params.kernel_fd, 0 },
                { "kernel-name", BUS_OPTION_STRING, &c->params.kernel_name, 0 },
                { "modules", BUS_OPTION_FD, &c->params.modules_fd, 0 },
                { "no-modules", BUS_OPTION_BOOL, &c->params.no_modules, 0 },
                { "cmdline", BUS_OPTION_STRING, &c->params.cmdline, 0 },
                { "disk", BUS_OPTION_U64, &c->params.disk_bytes, BUS_OPTION_NONZERO },
                { "warm", BUS_OPTION_BOOL, &c->want_warm, 0 },
        };

        return bus_options_read(m, options, ELEMENTSOF(options) - (on_another ? ROOT_OPTIONS : 0), error);
}

static int read_build(sd_bus_message *m, const char *name, const char *source, BuildCall *c, sd_bus_error *error) {
        TemplateBuildParams *p = &c->params;

        if (source) {
                p->mem_bytes = 0;
                p->cpus = 0;
        }
        int r = read_build_options(m, c, source, error);
        if (r >= 0)
                r = bus_tenant_check(p->owner_uid, p->tenant, error);
        if (r >= 0 && source)
                r = set_base(source, p, error);
        if (r >= 0)
                r = bus_parse_template_name(name, &c->base, &c->tag, error);
        if (r >= 0)
                r = bus_parse_aliases(c->aliases, error);
        if (r < 0)
                return r;
        p->name = c->base;
        p->tag = c->tag;
        p->aliases = c->aliases;
        for (; c->warm.n_copies < c->files.n; c->warm.n_copies++)
                c->copies[c->warm.n_copies] =
                        (TemplateCopy) { c->files.files[c->warm.n_copies].fd, c->files.files[c->warm.n_copies].name };
        c->warm.copies = c->copies;
        c->warm.setup = c->setup;
        c->warm.steps = c->steps.steps;
        c->warm.n_steps = c->steps.n;
        c->warm.env = c->env;
        p->warm = c->want_warm ? &c->warm : NULL;
        if (p->base && c->want_warm)
                set_start_of_base(p->base, &c->warm);
        return c->want_warm ? 0 : check_cold(&c->warm, &c->build_policy, error);
}

/* source: of the template that it stands on; NULL: it has a root file system of its own. */
static int build(sd_bus_message *m, const char *name, const char *source, int rootfs_fd, sd_bus_error *error) {
        _cleanup_(build_call_done) BuildCall c = { .params = TEMPLATE_BUILD_PARAMS_INIT, .want_warm = true };
        Manager *manager = bus_front->manager;
        TemplateBuildParams *p = &c.params;
        char path[CUBE_BUS_PATH_MAX];
        Job *job = NULL;
        const BusAccess access = {
                .action = POLKIT_TEMPLATES, .owner = BUS_OWNER_NONE, .key = "template", .value = name,
        };

        p->rootfs_fd = rootfs_fd;
        int r = bus_authorize(m, &access, &p->owner_uid, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        set_defaults(&manager->config, p);
        r = read_build(m, name, source, &c, error);
        if (r < 0)
                return r;
        const BusPolicyFor whom = { .actor = p->owner_uid, .tenant = p->tenant, .key = "template", .value = name };
        r = load_given(m, &whom, &c.policy, &c.loaded, error);
        if (r > 0)
                r = load_given(m, &whom, &c.build_policy, &c.build_loaded, error);
        if (r <= 0)
                return r < 0 ? r : 1;
        p->policy = c.policy.given ? &c.policy.rules : NULL;
        p->build_policy = c.build_loaded;
        p->build_rules = c.build_policy.given ? &c.build_policy.rules : NULL;

        r = manager_build_template(manager, p, &job, error);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, "o", bus_path_put(path, CUBE_BUS_PATH_JOB, job->id));
}

int bus_method_build_template(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;
        int rootfs_fd;

        int r = sd_bus_message_read(m, "sh", &name, &rootfs_fd);
        return r < 0 ? r : build(m, name, NULL, rootfs_fd, error);
}

int bus_method_derive_template(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name, *source;

        int r = sd_bus_message_read(m, "ss", &name, &source);
        return r < 0 ? r : build(m, name, source, -EBADF, error);
}

static void on_removed(Manager *m, const sd_bus_error *error, void *userdata) {
        _cleanup_bus_message_ sd_bus_message *call = userdata;

        if (sd_bus_error_is_set(error))
                (void) sd_bus_reply_method_error(call, error);
        else
                (void) sd_bus_reply_method_return(call, NULL);
}

int bus_method_remove_template(sd_bus_message *m, void *userdata, sd_bus_error *error) {
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

        r = bus_authorize_template(m, t, &actor, error);
        if (r <= 0)
                return r < 0 ? r : 1;

        return bus_keep_call(m, manager_remove_template(bus_front->manager, t, actor, on_removed,
                                                        sd_bus_message_ref(m), error));
}

static int property_get_name(sd_bus *bus, const char *path, const char *interface, const char *property,
                             sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        char name[BUS_TEMPLATE_NAME_MAX];
        return sd_bus_message_append(reply, "s", bus_template_name(userdata, name));
}

static int property_get_aliases(sd_bus *bus, const char *path, const char *interface, const char *property,
                                sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Template *t = userdata;
        return sd_bus_message_append_strv(reply, t->aliases);
}

static int property_get_public(sd_bus *bus, const char *path, const char *interface, const char *property,
                               sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Template *t = userdata;
        return sd_bus_message_append(reply, "b", t->public);
}

static int property_get_floor(sd_bus *bus, const char *path, const char *interface, const char *property,
                              sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "t", template_floor(userdata));
}

static int property_get_size(sd_bus *bus, const char *path, const char *interface, const char *property,
                             sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Template *t = userdata;
        uint64_t size = 0;

        for (size_t i = 0; i < _TEMPLATE_FILE_MAX; i++)
                size += t->file_bytes[i];
        return sd_bus_message_append(reply, "t", size);
}

static int property_get_kernel(sd_bus *bus, const char *path, const char *interface, const char *property,
                               sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Template *t = userdata;
        return sd_bus_message_append(reply, "s", t->kernel.release);
}

static int property_get_start(sd_bus *bus, const char *path, const char *interface, const char *property,
                              sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Template *t = userdata;
        bool warm = snapshot_store_find_template(bus_front->manager->snapshots, t->id);

        return sd_bus_message_append(reply, "s", warm ? "restored" : "booted");
}

/* Empty: DefaultPolicy= says. */
static int property_get_policy(sd_bus *bus, const char *path, const char *interface, const char *property,
                               sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const Template *t = userdata;
        return t->has_policy ? bus_policy_append(reply, &t->policy) : sd_bus_message_append(reply, "a{sv}", 0);
}

const sd_bus_vtable bus_template_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Id", "s", NULL, offsetof(Template, id), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Name", "s", property_get_name, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Aliases", "as", property_get_aliases, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Owner", "u", bus_property_uid, offsetof(Template, owner_uid), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Tenant", "s", bus_property_id, offsetof(Template, tenant), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Public", "b", property_get_public, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("CreatedTimestamp", "t", NULL, offsetof(Template, created_usec), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("KernelRelease", "s", property_get_kernel, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("CommandLine", "s", NULL, offsetof(Template, cmdline), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("RootType", "s", NULL, offsetof(Template, root_type), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("User", "s", NULL, offsetof(Template, defaults.user), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("WorkingDirectory", "s", NULL, offsetof(Template, defaults.cwd), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Memory", "t", NULL, offsetof(Template, mem_bytes), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("MemoryFloor", "t", property_get_floor, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("CPUs", "u", NULL, offsetof(Template, cpus), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Disk", "t", NULL, offsetof(Template, disk_bytes), SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Size", "t", property_get_size, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("NetworkPolicy", "a{sv}", property_get_policy, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Start", "s", property_get_start, 0, 0),
        SD_BUS_PROPERTY("NSandboxes", "u", NULL, offsetof(Template, n_users), 0),
        SD_BUS_VTABLE_END
};
