/* SPDX-License-Identifier: Apache-2.0 */

/* template export, template import: one file each. cubed opens nothing by name for us. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "ctl/ctl.h"
#include "ctl/job.h"
#include "ctl/template.h"
#include "ctl/text.h"
#include "ctl/values.h"

static int start_export(sd_bus *bus, const char *name, int fd, char **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *job;

        int r = ctl_call(bus, "Starting the export", CUBE_BUS_PATH, CUBE_BUS_MANAGER, "ExportTemplate", &reply, &error, "sh", name, fd);
        if (r >= 0)
                r = sd_bus_message_read(reply, "o", &job);
        if (r < 0)
                return ctl_fail(r, &error, "export template %s", name);
        *ret_job = strdup(job);
        return *ret_job ? 0 : -ENOMEM;
}

static int export_to(const char *name, int fd) {
        _cleanup_free_ char *job = NULL;
        sd_bus *bus;

        int r = ctl_connect_local(&bus);
        if (r >= 0)
                r = start_export(bus, name, fd, &job);
        return r < 0 ? r : job_follow(bus, job, "export template", name, false);
}

int template_export(int argc, char **argv) {
        static const struct option options[] = { CTL_GLOBAL_OPTIONS, {} };
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 2, 2);
        if (r < 0)
                return r;
        const char *name = argv[optind], *path = argv[optind + 1];
        if (streq(path, "-"))
                return isatty(STDOUT_FILENO) ? ctl_usage("A template is not written to a terminal; name a file, or redirect.") :
                                               export_to(name, STDOUT_FILENO);

        /* The memory of a guest is in it. */
        _cleanup_close_ int fd = open(path, O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC|O_NOCTTY, 0600);
        if (fd < 0)
                return ctl_fail(-errno, NULL, "create %s", path);
        r = export_to(name, fd);
        /* Half a file looks like one. */
        if (r < 0)
                (void) unlink(path);
        return r;
}

typedef struct ImportOptions {
        char **aliases;
        const char *path, *name;
} ImportOptions;

static void import_options_done(ImportOptions *o) {
        o->aliases = text_strv_free(o->aliases);
}

static int parse_import(int argc, char **argv, ImportOptions *o) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                { "alias", required_argument, NULL, 'a' },
                {},
        };
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT, options, NULL)) >= 0) {
                if (c == 'a') {
                        r = value_template_name(optarg);
                        if (r >= 0)
                                r = text_strv_add(&o->aliases, optarg);
                } else
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, 2);
        if (r < 0)
                return r;
        o->path = argv[optind];
        o->name = optind + 1 < argc ? argv[optind + 1] : NULL;
        return o->name ? value_template_name(o->name) : 0;
}

static int start_import(sd_bus *bus, const ImportOptions *o, int fd, char **ret_job) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL, *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *job;

        int r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER, "ImportTemplate");
        if (r >= 0)
                r = sd_bus_message_append(call, "sh", strempty(o->name), fd);
        if (r >= 0)
                r = sd_bus_message_open_container(call, 'a', "{sv}");
        if (r >= 0)
                r = ctl_append_strings(call, "alias", o->aliases);
        if (r >= 0)
                r = sd_bus_message_close_container(call);
        if (r >= 0)
                r = ctl_call_message(bus, "Starting the import", call, &reply, &error);
        if (r >= 0)
                r = sd_bus_message_read(reply, "o", &job);
        if (r < 0)
                return ctl_fail(r, &error, "import %s", o->path);
        *ret_job = strdup(job);
        return *ret_job ? 0 : -ENOMEM;
}

int template_import(int argc, char **argv) {
        _cleanup_(import_options_done) ImportOptions o = {};
        _cleanup_close_ int fd = -EBADF;
        _cleanup_free_ char *job = NULL;
        sd_bus *bus;

        int r = parse_import(argc, argv, &o);
        if (r < 0)
                return r;
        fd = streq(o.path, "-") ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(o.path, O_RDONLY|O_CLOEXEC|O_NOCTTY);
        if (fd < 0)
                return ctl_fail(-errno, NULL, "open %s", o.path);
        r = ctl_connect_local(&bus);
        if (r >= 0)
                r = start_import(bus, &o, fd, &job);
        return r < 0 ? r : job_follow(bus, job, "import", o.path, true);
}
