/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/build-options.h"
#include "ctl/spec.h"
#include "ctl/text.h"
#include "ctl/values.h"

static int set_command(const char *option, const char *s, const char **ret) {
        if (!*s)
                return ctl_usage("--%s= needs a command.", option);
        *ret = s;
        return 1;
}

static int add_setup(BuildOptions *o, const char *s) {
        const char *command = NULL;
        int r = set_command("setup", s, &command);

        if (r >= 0)
                r = text_strv_add(&o->setup, command);
        return r < 0 ? r : 1;
}

/* SRC may have colons too, and DEST begins with a slash. */
static const char *find_destination(const char *s) {
        const char *found = NULL;

        for (const char *p = strstr(s, ":/"); p; p = strstr(p + 1, ":/"))
                found = p;
        return found;
}

/* Into the directory DEST/, under its own name, or to DEST itself. */
static int set_destination(BuildCopy *c, const char *path) {
        if (path[strlen(path) - 1] != '/') {
                c->path = strdup(path);
                return c->path ? 0 : -ENOMEM;
        }
        _cleanup_free_ char *name = path_last(c->source);
        if (!name)
                return ctl_usage("'%s' has no name to give the copy; name it in the destination.", c->source);
        return path_join(path, name, &c->path);
}

static int add_copy(BuildOptions *o, const char *s) {
        const char *colon = find_destination(s);

        if (!colon || colon == s)
                return ctl_usage("--copy=%s is not SRC:DEST with an absolute path DEST.", s);
        if (o->n_copies == BUILD_COPIES_MAX)
                return ctl_usage("--copy can be given %u times at most; put it into one directory.", BUILD_COPIES_MAX);
        BuildCopy *c = &o->copies[o->n_copies++];
        *c = (BuildCopy) { .source = strndup(s, (size_t) (colon - s)), .fd = -EBADF };
        if (!c->source)
                return -ENOMEM;
        int r = set_destination(c, colon + 1);
        return r < 0 ? r : 1;
}

static int add_step(BuildOptions *o, const char *s) {
        if (o->n_steps == BUILD_STEPS_MAX)
                return ctl_usage("--step can be given %u times at most.", BUILD_STEPS_MAX);
        if (!o->steps) {
                o->steps = new0(BuildStep, BUILD_STEPS_MAX);
                if (!o->steps)
                        return -ENOMEM;
        }
        int r = build_step_parse(s, &o->steps[o->n_steps]);
        if (r < 0)
                return r;
        o->n_steps++;
        return 1;
}

static int add_alias(BuildOptions *o, const char *s) {
        int r = value_template_name(s);

        if (r >= 0)
                r = text_strv_add(&o->aliases, s);
        return r < 0 ? r : 1;
}

static int registry_option(BuildOptions *o, int c) {
        switch (c) {
        case BUILD_AUTHFILE:
                o->skopeo.authfile = optarg;
                return 1;
        case BUILD_CERT_DIR:
                o->skopeo.cert_dir = optarg;
                return 1;
        case BUILD_INSECURE:
                o->skopeo.insecure = true;
                return 1;
        }
        return 0;
}

static int template_option(BuildOptions *o, int c) {
        switch (c) {
        case BUILD_FROM:
                o->from = optarg;
                return 1;
        case BUILD_KERNEL:
                o->kernel = optarg;
                return 1;
        case BUILD_MODULES:
                o->modules = optarg;
                return 1;
        case BUILD_NO_MODULES:
                o->no_modules = true;
                return 1;
        case BUILD_CMDLINE:
                o->cmdline = optarg;
                return 1;
        case BUILD_MEMORY:
                return value_size("memory", optarg, &o->mem_bytes);
        case BUILD_DISK:
                return value_size("disk", optarg, &o->disk_bytes);
        case BUILD_CPUS:
                return value_cpus(optarg, &o->cpus);
        case BUILD_ALIAS:
                return add_alias(o, optarg);
        case BUILD_NO_CACHE:
                o->no_cache = true;
                return 1;
        case BUILD_PUBLIC:
                o->public = true;
                return 1;
        case BUILD_TIMEOUT:
                return value_time("timeout", optarg, &o->timeout_usec);
        }
        return 0;
}

static int warm_option(BuildOptions *o, int c) {
        switch (c) {
        case BUILD_NO_WARM:
                o->no_warm = true;
                return 1;
        case BUILD_COPY:
                return add_copy(o, optarg);
        case BUILD_SETUP:
                return add_setup(o, optarg);
        case BUILD_STEP:
                return add_step(o, optarg);
        case BUILD_START:
                return set_command("start", optarg, &o->start);
        case BUILD_NO_START:
                o->no_start = true;
                return 1;
        case BUILD_READY:
                return set_command("ready", optarg, &o->ready);
        case BUILD_READY_TIMEOUT:
                return value_time("ready-timeout", optarg, &o->ready_timeout_usec);
        case 'e':
        case 'u':
        case 'C':
                return exec_option(&o->exec, c);
        }
        return 0;
}

int build_option(BuildOptions *o, int c) {
        int r = template_option(o, c);

        if (r == 0)
                r = registry_option(o, c);
        if (r == 0)
                r = warm_option(o, c);
        if (r == 0)
                r = policy_option(&o->policy, CTL_OPTION_POLICY, "network", c);
        return r != 0 ? r : policy_option(&o->build_policy, CTL_OPTION_BUILD_POLICY, "build-network", c);
}

const char *build_options_base(const BuildOptions *o) {
        return startswith(o->from, "template:");
}

/* What another template has is as it has it. */
static int check_base(const BuildOptions *o) {
        if (o->kernel || o->modules || o->no_modules || o->cmdline)
                return ctl_usage("A template on another one has its kernel: --kernel, --modules, --no-modules and --cmdline don't go with --from=template:...");
        if (o->disk_bytes > 0)
                return ctl_usage("A template on another one has its disk: --disk doesn't go with --from=template:...");
        if (o->no_warm)
                return ctl_usage("A template on another one is what its guest becomes: --no-warm doesn't go with --from=template:...");
        return value_template_name(build_options_base(o));
}

static bool has_archives(const BuildOptions *o) {
        for (size_t i = 0; i < o->n_steps; i++)
                if (o->steps[i].source)
                        return true;
        return false;
}

static int check_steps(const BuildOptions *o) {
        if (o->n_steps == 0)
                return 0;
        if (o->setup)
                return ctl_usage("--setup and --step don't go together: --step='RUN COMMAND' is one of --setup.");
        if (has_archives(o) && o->n_copies == BUILD_COPIES_MAX)
                return ctl_usage("Beside steps of COPY there can be %u times --copy at most.", BUILD_COPIES_MAX - 1);
        return 0;
}

int build_options_check(const BuildOptions *o) {
        if (!o->from)
                return ctl_usage("'template build' needs --from: an image, a tar, a directory or a template.");
        if ((o->skopeo.authfile || o->skopeo.cert_dir || o->skopeo.insecure) && !startswith(o->from, "docker://"))
                return ctl_usage("--authfile, --cert-dir and --insecure are for registries: --from=docker://...");
        if (o->start && o->no_start)
                return ctl_usage("--start and --no-start don't go together.");
        if (o->no_warm && (o->n_copies > 0 || o->setup || o->n_steps > 0 || o->start || o->ready))
                return ctl_usage("--no-warm runs nothing in a guest, so --copy, --setup, --step, --start and --ready don't go with it.");
        if (o->no_warm && policy_options_given(&o->build_policy))
                return ctl_usage("--no-warm runs nothing in a guest, so --build-network, --build-allow and --build-deny don't go with it.");
        int r = check_steps(o);
        return r < 0 || !build_options_base(o) ? r : check_base(o);
}

void build_options_done(BuildOptions *o) {
        while (o->n_copies > 0) {
                BuildCopy *c = &o->copies[--o->n_copies];

                free(c->source);
                free(c->path);
                safe_close(c->fd);
        }
        while (o->n_steps > 0)
                build_step_done(&o->steps[--o->n_steps]);
        free(o->steps);
        o->steps = NULL;
        o->aliases = text_strv_free(o->aliases);
        o->setup = text_strv_free(o->setup);
        exec_options_done(&o->exec);
        policy_options_done(&o->policy);
        policy_options_done(&o->build_policy);
}

static int append_string(sd_bus_message *m, const char *name, const char *value) {
        return value ? sd_bus_message_append(m, "{sv}", name, "s", value) : 0;
}

static int append_u64(sd_bus_message *m, const char *name, uint64_t value) {
        return value > 0 ? sd_bus_message_append(m, "{sv}", name, "t", value) : 0;
}

bool build_kernel_is_name(const char *kernel) {
        return kernel && (streq(kernel, "small") || streq(kernel, "stock"));
}

static int append_template(sd_bus_message *m, const BuildOptions *o, const BuildFiles *files) {
        int r = append_string(m, "image", files->image);

        if (r >= 0)
                r = append_string(m, "kernel-name", build_kernel_is_name(o->kernel) ? o->kernel : NULL);
        if (r >= 0 && files->kernel_fd >= 0)
                r = sd_bus_message_append(m, "{sv}", "kernel", "h", files->kernel_fd);
        if (r >= 0 && files->modules_fd >= 0)
                r = sd_bus_message_append(m, "{sv}", "modules", "h", files->modules_fd);
        if (r >= 0 && o->no_modules)
                r = sd_bus_message_append(m, "{sv}", "no-modules", "b", 1);
        if (r >= 0)
                r = append_string(m, "cmdline", o->cmdline);
        if (r >= 0)
                r = append_u64(m, "memory", o->mem_bytes);
        if (r >= 0)
                r = append_u64(m, "disk", o->disk_bytes);
        if (r >= 0 && o->cpus > 0)
                r = sd_bus_message_append(m, "{sv}", "cpus", "u", o->cpus);
        if (r >= 0 && o->no_cache)
                r = sd_bus_message_append(m, "{sv}", "no-cache", "b", 1);
        if (r >= 0 && o->public)
                r = sd_bus_message_append(m, "{sv}", "public", "b", 1);
        if (r >= 0)
                r = ctl_append_strings(m, "alias", o->aliases);
        return r < 0 ? r : append_u64(m, "timeout", o->timeout_usec);
}

/* {sv} of an array of that type, up to where its entries are. */
static int open_array(sd_bus_message *m, const char *name, const char *type) {
        int r = sd_bus_message_open_container(m, 'e', "sv");

        if (r >= 0)
                r = sd_bus_message_append(m, "s", name);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', type);
        return r < 0 ? r : sd_bus_message_open_container(m, 'a', type + 1);
}

static int close_array(sd_bus_message *m) {
        int r = 0;

        for (unsigned i = 0; i < 3 && r >= 0; i++)
                r = sd_bus_message_close_container(m);
        return r;
}

static int append_copies(sd_bus_message *m, const BuildOptions *o, int archives_fd) {
        if (o->n_copies == 0 && archives_fd < 0)
                return 0;
        int r = open_array(m, "copy", "a(hs)");
        for (size_t i = 0; i < o->n_copies && r >= 0; i++)
                r = sd_bus_message_append(m, "(hs)", o->copies[i].fd, o->copies[i].path);
        if (r >= 0 && archives_fd >= 0)
                r = sd_bus_message_append(m, "(hs)", archives_fd, BUILD_ARCHIVES);
        return r < 0 ? r : close_array(m);
}

static int append_step(sd_bus_message *m, const BuildStep *step) {
        int r = sd_bus_message_open_container(m, 'r', "sas");

        if (r >= 0)
                r = sd_bus_message_append(m, "s", step->type);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "s");
        for (size_t i = 0; i < step->n_args && r >= 0; i++)
                r = sd_bus_message_append(m, "s", step->args[i]);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static int append_steps(sd_bus_message *m, const BuildOptions *o, int archives_fd) {
        if (o->n_steps == 0)
                return 0;
        int r = open_array(m, "steps", "a(sas)");
        for (size_t i = 0; i < o->n_steps && r >= 0; i++)
                r = append_step(m, &o->steps[i]);
        if (r >= 0 && archives_fd >= 0)
                r = sd_bus_message_append(m, "(sas)", "RUN", 2, "rm -rf " BUILD_ARCHIVES, "root");
        return r < 0 ? r : close_array(m);
}

static int append_warm(sd_bus_message *m, const BuildOptions *o, int archives_fd) {
        int r = 0;

        if (o->no_warm)
                r = sd_bus_message_append(m, "{sv}", "warm", "b", 0);
        if (r >= 0)
                r = append_copies(m, o, archives_fd);
        if (r >= 0)
                r = ctl_append_strings(m, "setup", o->setup);
        if (r >= 0)
                r = append_steps(m, o, archives_fd);
        if (r >= 0)
                r = append_string(m, "start", o->start);
        if (r >= 0 && o->no_start)
                r = sd_bus_message_append(m, "{sv}", "no-start", "b", 1);
        if (r >= 0)
                r = append_string(m, "ready", o->ready);
        if (r >= 0)
                r = append_u64(m, "ready-timeout", o->ready_timeout_usec);
        if (r >= 0)
                r = ctl_append_strings(m, "env", o->exec.env);
        if (r >= 0)
                r = append_string(m, "user", o->exec.user);
        return r < 0 ? r : append_string(m, "cwd", o->exec.cwd);
}

int build_options_append(sd_bus_message *m, const BuildOptions *o, const BuildFiles *files) {
        int r = sd_bus_message_open_container(m, 'a', "{sv}");

        if (r >= 0)
                r = append_template(m, o, files);
        if (r >= 0)
                r = append_warm(m, o, files->archives_fd);
        if (r >= 0)
                r = policy_options_append_entry(m, "network-policy", &o->policy);
        if (r >= 0)
                r = policy_options_append_entry(m, "build-network-policy", &o->build_policy);
        return r < 0 ? r : sd_bus_message_close_container(m);
}
