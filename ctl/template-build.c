/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "ctl/build-archives.h"
#include "ctl/build-file.h"
#include "ctl/build-options.h"
#include "ctl/ctl.h"
#include "ctl/job.h"
#include "ctl/template.h"
#include "ctl/template-source.h"
#include "ctl/values.h"

/* Options that are looked at twice. */
#define GIVEN_MAX 1024U

typedef struct Build {
        const char *name;
        BuildOptions options;
        BuildFile file;
        TemplateSource source;
        BuildArchives archives;

        sd_bus *bus;
        char *job;          /* path */
} Build;

static void build_done(Build *b) {
        build_options_done(&b->options);
        build_file_done(&b->file);
        template_source_done(&b->source);
        build_archives_done(&b->archives);
        free(b->job);
}

static int open_input(const char *path, const char *what) {
        int fd = open(path, O_RDONLY|O_CLOEXEC|O_NOCTTY);
        return fd < 0 ? ctl_fail(-errno, NULL, "open %s %s", what, path) : fd;
}

/* Non-blocking: a FIFO is found out, not waited for. */
static int open_copies(BuildOptions *o) {
        struct stat st;

        for (size_t i = 0; i < o->n_copies; i++) {
                BuildCopy *c = &o->copies[i];

                c->fd = open(c->source, O_RDONLY|O_CLOEXEC|O_NOCTTY|O_NONBLOCK);
                if (c->fd < 0 || fstat(c->fd, &st) < 0)
                        return ctl_fail(-errno, NULL, "open %s to copy it", c->source);
                if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
                        return ctl_usage("--copy: %s is neither a file nor a directory.", c->source);
        }
        return 0;
}

/* What is wrong at once first: to bring an image in may take minutes. */
static int open_inputs(Build *b, BuildFiles *files) {
        BuildOptions *o = &b->options;

        if (o->kernel && !build_kernel_is_name(o->kernel) && (files->kernel_fd = open_input(o->kernel, "kernel")) < 0)
                return files->kernel_fd;
        if (o->modules && (files->modules_fd = open_input(o->modules, "modules")) < 0)
                return files->modules_fd;
        int r = open_copies(o);
        if (r >= 0)
                r = build_archives_make(o, &b->archives);
        if (r >= 0 && !build_options_base(o))
                r = template_source_open(o->from, &o->skopeo, &b->source);
        files->archives_fd = b->archives.fd;
        files->image = b->source.image;
        return r;
}

static int make_call(const Build *b, const BuildFiles *files, sd_bus_message **ret) {
        const char *base = build_options_base(&b->options);

        int r = sd_bus_message_new_method_call(b->bus, ret, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER,
                                               base ? "DeriveTemplate" : "BuildTemplate");
        if (r >= 0)
                r = sd_bus_message_sensitive(*ret);
        if (r >= 0)
                r = base ? sd_bus_message_append(*ret, "ss", b->name, base) : sd_bus_message_append(*ret, "sh", b->name, b->source.fd);
        return r < 0 ? r : build_options_append(*ret, &b->options, files);
}

static void build_files_done(BuildFiles *f) {
        safe_close(f->kernel_fd);
        safe_close(f->modules_fd);
}

static int start_job(Build *b) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL, *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(build_files_done) BuildFiles files = { .kernel_fd = -EBADF, .modules_fd = -EBADF, .archives_fd = -EBADF };
        const char *job;

        int r = open_inputs(b, &files);
        if (r < 0)
                return r;
        r = make_call(b, &files, &call);
        if (r >= 0)
                r = ctl_call_message(b->bus, "Starting the build", call, &reply, &error);
        if (r >= 0)
                r = sd_bus_message_read(reply, "o", &job);
        if (r < 0)
                return ctl_fail(r, &error, "build template %s", b->name);
        b->job = strdup(job);
        return b->job ? 0 : -ENOMEM;
}

static const struct option options[] = {
        CTL_GLOBAL_OPTIONS,
        BUILD_OPTIONS,
        { "file", required_argument, NULL, 'f' },
        {},
};

/* What stands on the command line wins over the file, and so the file is read first, knowing what that is. */
static int load_file(int argc, char **argv, Build *b) {
        int given[GIVEN_MAX], c;
        const char *path = NULL;
        size_t n = 0;

        /* What is wrong is said the second time. */
        opterr = 0;
        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT BUILD_SHORT "f:", options, NULL)) >= 0)
                if (c == 'f')
                        path = optarg;
                else if (n < ELEMENTSOF(given))
                        given[n++] = c;
        opterr = 1;
        return path ? build_file_load(&b->file, path, given, n, &b->options) : 0;
}

static int parse(int argc, char **argv, Build *b) {
        int c, r;

        r = load_file(argc, argv, b);
        if (r < 0)
                return r;
        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT BUILD_SHORT "f:", options, NULL)) >= 0) {
                r = c == 'f' ? 1 : build_option(&b->options, c);
                if (r == 0)
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, b->file.name ? 0 : 1, 1);
        if (r < 0)
                return r;
        b->name = optind < argc ? argv[optind] : b->file.name;
        r = value_template_name(b->name);
        return r < 0 ? r : build_options_check(&b->options);
}

int template_build(int argc, char **argv) {
        _cleanup_(build_done) Build b = { .source = TEMPLATE_SOURCE_INIT, .archives = BUILD_ARCHIVES_INIT };

        int r = parse(argc, argv, &b);
        if (r >= 0)
                r = ctl_connect_local(&b.bus);
        if (r >= 0)
                r = start_job(&b);
        return r < 0 ? r : job_follow(b.bus, b.job, "build template", b.name, true);
}
