/* SPDX-License-Identifier: Apache-2.0 */

/* cubed: main. Connects configuration, loop, bus, manager and the bus front, and runs the loop. */

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include "daemon/log-control.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "dbus/bus-front.h"

typedef struct Arguments {
        bool introspect;
        const char *interface;
        bool show_config;
} Arguments;

static int usage(FILE *f) {
        fputs("cubed [OPTIONS...]\n\n"
              "Runs sandboxes for untrusted code, each in a virtual machine of its own.\n\n"
              "  -h --help                     Show this help\n"
              "     --version                  Show the version\n"
              "     --bus-introspect[=NAME]    Show the D-Bus interfaces, or one of them, as XML\n"
              "     --show-config              Show the configuration in effect\n\n"
              "Started as cubed.service; see cubed(8).\n",
              f);
        return 0;
}

/* 1: go on. */
static int parse_arguments(int argc, char *argv[], Arguments *ret) {
        enum { ARG_VERSION = 0x100, ARG_INTROSPECT, ARG_SHOW_CONFIG };
        static const struct option options[] = {
                { "help", no_argument, NULL, 'h' },
                { "version", no_argument, NULL, ARG_VERSION },
                { "bus-introspect", optional_argument, NULL, ARG_INTROSPECT },
                { "show-config", no_argument, NULL, ARG_SHOW_CONFIG },
                {},
        };
        int c;

        while ((c = getopt_long(argc, argv, "h", options, NULL)) >= 0)
                switch (c) {
                case 'h':
                        return usage(stdout);
                case ARG_VERSION:
                        puts("cubed " CUBED_VERSION);
                        return 0;
                case ARG_INTROSPECT:
                        ret->introspect = true;
                        ret->interface = optarg && *optarg ? optarg : NULL;
                        break;
                case ARG_SHOW_CONFIG:
                        ret->show_config = true;
                        break;
                default:
                        return -EINVAL;
                }
        if (optind < argc) {
                log_error("Unexpected argument: %s", argv[optind]);
                return -EINVAL;
        }
        return 1;
}

static void on_config_warning(void *userdata, const char *path, unsigned line, const char *message) {
        if (line > 0)
                log_warning("%s:%u: %s", path, line, message);
        else
                log_warning("%s: %s", path, message);
}

static int load_config(Config *ret) {
        int r = config_init(ret);

        if (r >= 0) {
                r = config_load(ret, "", on_config_warning, NULL);
                if (r < 0)
                        config_done(ret);
        }
        return r < 0 ? log_error_errno(r, "Failed to load the configuration: %m") : 0;
}

static int on_hangup(sd_event_source *source, const struct signalfd_siginfo *si, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        if (manager_reload(userdata, &e) < 0)
                log_error("Failed to reload: %s", strempty(e.message));
        return 0;
}

static int on_disconnected(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        log_error("The system bus went away. Sandboxes go on; the next cubed takes them over");
        (void) sd_notify(false, "STATUS=The system bus went away\nERRNO=107");
        int r = sd_event_exit(userdata, EXIT_FAILURE);
        if (r < 0)
                log_error_errno(r, "Can't leave the loop: %m");
        return 0;
}

static int open_bus(sd_event *event, sd_bus **ret) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;

        int r = sd_bus_open_system_with_description(&bus, "system");
        if (r < 0)
                return log_error_errno(r, "Can't connect to the system bus: %m; is dbus.service running?");
        r = sd_bus_attach_event(bus, event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = sd_bus_match_signal(bus, NULL, "org.freedesktop.DBus.Local", "/org/freedesktop/DBus/Local",
                                        "org.freedesktop.DBus.Local", "Disconnected", on_disconnected, event);
        if (r < 0)
                return log_error_errno(r, "Can't set up the system bus: %m");
        *ret = TAKE_PTR(bus);
        return 0;
}

static int open_event(sd_event **ret) {
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGHUP);
        (void) sigprocmask(SIG_BLOCK, &set, NULL);
        (void) signal(SIGPIPE, SIG_IGN);

        int r = sd_event_default(&event);
        if (r >= 0)
                r = sd_event_set_signal_exit(event, true);
        if (r >= 0)
                r = sd_event_set_watchdog(event, true);
        if (r < 0)
                return log_error_errno(r, "Can't make the event loop: %m");
        *ret = TAKE_PTR(event);
        return 0;
}

/* sd_event_loop(), with a clock on each dispatch. */
static int run_loop(sd_event *event, Manager *m) {
        int code = 0, r;

        while (sd_event_get_state(event) != SD_EVENT_FINISHED) {
                r = sd_event_prepare(event);
                if (r == 0)
                        r = sd_event_wait(event, UINT64_MAX);
                if (r > 0) {
                        manager_dispatch_begin(m);
                        r = sd_event_dispatch(event);
                        manager_dispatch_end(m);
                }
                if (r < 0)
                        return log_error_errno(r, "The event loop failed: %m");
        }
        r = sd_event_get_exit_code(event, &code);
        return r < 0 ? r : code;
}

static int run(const Config *config) {
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        Manager *m = NULL;

        int r = open_event(&event);
        if (r >= 0)
                r = open_bus(event, &bus);
        if (r < 0)
                return r;
        r = manager_new(event, config, &m);
        if (r < 0)
                return log_oom();
        m->bus = sd_bus_ref(bus);

        r = sd_event_add_signal(event, NULL, SIGHUP, on_hangup, m);
        if (r >= 0)
                r = manager_startup(m);
        if (r >= 0)
                r = log_control_attach(bus);
        if (r >= 0) {
                r = bus_front_attach(m);
                if (r == -EEXIST)
                        log_error("Another process owns the bus name org.cubed.Cube1; is a second cubed running?");
                else if (r < 0)
                        log_error_errno(r, "Can't offer the D-Bus API: %m");
        }
        if (r >= 0) {
                (void) sd_notify(false, "READY=1");
                log_info("cubed " CUBED_VERSION " is ready, %zu sandboxes taken over", m->n_sandboxes);
                r = run_loop(event, m);
                (void) sd_notify(false, "STOPPING=1\nSTATUS=Going down; sandboxes go on");
                bus_front_detach(m);
        }
        manager_free(m);
        return r;
}

int main(int argc, char *argv[]) {
        Arguments arguments = {};
        Config config;

        log_open();
        int r = parse_arguments(argc, argv, &arguments);
        if (r <= 0)
                return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        if (arguments.introspect) {
                r = bus_front_introspect(arguments.interface);
                if (r < 0)
                        log_error("No interface %s", strempty(arguments.interface));
                return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        }

        (void) umask(0077);
        r = load_config(&config);
        if (r < 0)
                return EXIT_FAILURE;
        if (arguments.show_config)
                config_dump(&config, stdout);
        else
                r = run(&config);
        config_done(&config);
        return r < 0 ? EXIT_FAILURE : r;
}
