/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <systemd/sd-event.h>

#include "base/fd-util.h"
#include "base/parse.h"
#include "ctl/build-options.h"
#include "ctl/ctl.h"
#include "ctl/properties.h"
#include "ctl/template.h"
#include "ctl/text.h"
#include "ctl/values.h"

typedef struct Build {
        const char *name;
        BuildOptions options;

        sd_bus *bus;
        sd_event *event;
        char *job;          /* path */
        int log_fd;
        char log[4096];     /* what of it is still to be printed */
        size_t log_size;
        char *step;
        bool line_open;     /* a progress line stands on the terminal */
        bool canceled;
} Build;

static void build_done(Build *b) {
        build_options_done(&b->options);
        sd_event_unref(b->event);
        safe_close(b->log_fd);
        free(b->job);
        free(b->step);
}

/* cubed opens nothing by name for us: what we may not read it does not read. */
static int open_input(const char *path, const char *what) {
        if (streq(path, "-"))
                return fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);

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

static int start_job(Build *b) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL, *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_close_ int rootfs = -EBADF, kernel = -EBADF, modules = -EBADF;
        const char *job;

        rootfs = open_input(b->options.rootfs, "root file system");
        if (rootfs < 0)
                return rootfs;
        if (b->options.kernel && (kernel = open_input(b->options.kernel, "kernel")) < 0)
                return kernel;
        if (b->options.modules && (modules = open_input(b->options.modules, "modules")) < 0)
                return modules;
        int r = open_copies(&b->options);
        if (r < 0)
                return r;

        r = sd_bus_message_new_method_call(b->bus, &call, CUBE_BUS_NAME, CUBE_BUS_PATH, CUBE_BUS_MANAGER,
                                               "BuildTemplate");
        if (r >= 0)
                r = sd_bus_message_sensitive(call);
        if (r >= 0)
                r = sd_bus_message_append(call, "sh", b->name, rootfs);
        if (r >= 0)
                r = build_options_append(call, &b->options, kernel, modules);
        if (r >= 0)
                r = ctl_call_message(b->bus, "Starting the build", call, &reply, &error);
        if (r >= 0)
                r = sd_bus_message_read(reply, "o", &job);
        if (r < 0)
                return ctl_fail(r, &error, "build template %s", b->name);
        b->job = strdup(job);
        return b->job ? 0 : -ENOMEM;
}

static int open_log(Build *b) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int fd;

        int r = ctl_call(b->bus, NULL, b->job, CUBE_BUS_JOB, "OpenLog", &reply, &error, NULL);
        if (r >= 0)
                r = sd_bus_message_read(reply, "h", &fd);
        if (r >= 0) {
                b->log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
                r = b->log_fd < 0 ? -errno : fd_set_nonblock(b->log_fd, true);
        }
        return r < 0 ? ctl_fail(r, &error, "read the build's log") : 0;
}

static void clear_line(Build *b) {
        if (b->line_open)
                fputs("\r\033[K", stderr);
        b->line_open = false;
}

static void print_log(Build *b, size_t size) {
        if (!ctl_options.quiet && size > 0) {
                _cleanup_free_ char *text = text_printable(b->log, size, true);
                clear_line(b);
                fputs(strempty(text), stderr);
        }
        b->log_size -= size;
        memmove(b->log, b->log + size, b->log_size);
}

static int on_log(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Build *b = userdata;

        ssize_t n = read(fd, b->log + b->log_size, sizeof(b->log) - b->log_size);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n <= 0) {
                print_log(b, b->log_size);
                return sd_event_exit(b->event, 0);
        }
        b->log_size += (size_t) n;
        print_log(b, text_whole(b->log, b->log_size));
        return 0;
}

static void show_step(Build *b, json_object *o) {
        const char *step = properties_string(o, "Step");
        unsigned progress = (unsigned) properties_u64(o, "Progress");
        bool terminal = isatty(STDERR_FILENO);

        if (ctl_options.quiet || isempty(step))
                return;
        if (terminal) {
                clear_line(b);
                fprintf(stderr, "[%3u%%] %s", progress, step);
                fflush(stderr);
                b->line_open = true;
        } else if (!b->step || !streq(b->step, step))
                fprintf(stderr, "[%3u%%] %s\n", progress, step);
        free(b->step);
        b->step = strdup(step);
}

static int on_properties(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        json_object *o = NULL;
        Build *b = userdata;

        if (!sd_bus_message_get_error(m) && properties_read(m, &o) >= 0)
                show_step(b, o);
        json_object_put(o);
        return 1;
}

static int match_changed(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        const char *interface;
        json_object *o = NULL;
        Build *b = userdata;

        if (sd_bus_message_read(m, "s", &interface) >= 0 && streq(interface, CUBE_BUS_JOB) &&
            properties_read(m, &o) >= 0)
                show_step(b, o);
        json_object_put(o);
        return 0;
}

static int on_interrupt(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata) {
        Build *b = userdata;

        /* The second one leaves without waiting for the answer to the first. */
        if (b->canceled)
                return sd_event_exit(b->event, -EINTR);
        b->canceled = true;
        clear_line(b);
        ctl_note("Canceling the build...");
        (void) sd_bus_call_method_async(b->bus, NULL, CUBE_BUS_NAME, b->job, CUBE_BUS_JOB, "Cancel", NULL, NULL, NULL);
        return 0;
}

static int follow_job(Build *b) {
        _cleanup_(sd_bus_slot_unrefp) sd_bus_slot *slot = NULL, *get = NULL;
        sigset_t mask;

        sigemptyset(&mask);
        sigaddset(&mask, SIGINT);
        sigaddset(&mask, SIGTERM);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);

        int r = sd_event_new(&b->event);
        if (r >= 0)
                r = sd_bus_attach_event(b->bus, b->event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = sd_event_add_signal(b->event, NULL, SIGINT, on_interrupt, b);
        if (r >= 0)
                r = sd_event_add_signal(b->event, NULL, SIGTERM, on_interrupt, b);
        if (r >= 0)
                r = sd_bus_match_signal(b->bus, &slot, CUBE_BUS_NAME, b->job, "org.freedesktop.DBus.Properties",
                                        "PropertiesChanged", match_changed, b);
        if (r >= 0)
                r = sd_bus_call_method_async(b->bus, &get, CUBE_BUS_NAME, b->job, "org.freedesktop.DBus.Properties",
                                             "GetAll", on_properties, b, "s", CUBE_BUS_JOB);
        if (r >= 0)
                r = sd_event_add_io(b->event, NULL, b->log_fd, EPOLLIN, on_log, b);
        if (r >= 0)
                r = sd_event_loop(b->event);
        clear_line(b);
        (void) sd_bus_detach_event(b->bus);
        return r == -EINTR ? r : r < 0 ? ctl_fail(r, NULL, "follow the build") : 0;
}

static int report_result(Build *b) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        json_object *o;

        int r = properties_get(b->bus, b->job, CUBE_BUS_JOB, &o, &error);
        if (r < 0)
                return ctl_fail(r, &error, "learn how the build ended");

        const char *state = properties_string(o, "State");
        if (streq(state, "done")) {
                puts(properties_string(o, "Template"));
                r = fflush(stdout) == 0 ? 0 : -EIO;
        } else {
                const char *text = properties_string(o, "Error");
                r = ctl_fail_text(-EIO, isempty(text) ? state : text, "build template %s", b->name);
        }
        json_object_put(o);
        return r;
}

static int parse(int argc, char **argv, Build *b) {
        static const struct option options[] = {
                CTL_GLOBAL_OPTIONS,
                BUILD_OPTIONS,
                {},
        };
        int c, r;

        ctl_reset_getopt();
        while ((c = getopt_long(argc, argv, CTL_GLOBAL_SHORT BUILD_SHORT, options, NULL)) >= 0) {
                r = build_option(&b->options, c);
                if (r == 0)
                        r = ctl_global_option(c);
                if (r < 0)
                        return r;
        }
        r = ctl_check_arguments(argc, argv, 1, 1);
        if (r < 0)
                return r;
        b->name = argv[optind];
        r = value_template_name(b->name);
        return r < 0 ? r : build_options_check(&b->options);
}

int template_build(int argc, char **argv) {
        _cleanup_(build_done) Build b = { .log_fd = -EBADF };

        int r = parse(argc, argv, &b);
        if (r >= 0)
                r = ctl_connect_local(&b.bus);
        if (r >= 0)
                r = start_job(&b);
        if (r >= 0)
                r = open_log(&b);
        if (r >= 0)
                r = follow_job(&b);
        if (r >= 0)
                r = report_result(&b);
        return r;
}
