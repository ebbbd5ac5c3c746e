/* SPDX-License-Identifier: Apache-2.0 */

/* daemon/scope.c on the bus that DBUS_SYSTEM_BUS_ADDRESS names, driven by words on stdin, one a
 * line, and answering each with one line on stdout. For test_scope.py.
 *
 *      start NAME | adopt | limits BYTES USEC | result | kill | free | quit */

#include <stdio.h>

#include "base/macros.h"
#include "daemon/scope.h"

static sd_event *event;
static Units *units;
static Scope *scope;

static void say(const char *what, const char *detail) {
        printf("%s%s%s\n", what, *detail ? " " : "", detail);
        fflush(stdout);
}

static void say_error(const sd_bus_error *error) {
        char text[600];

        (void) snprintf(text, sizeof(text), "%s: %s", error->name, strempty(error->message));
        say("error", text);
}

static void on_done(Scope *s, const sd_bus_error *error, void *userdata) {
        if (error)
                say_error(error);
        else
                say("done", "");
}

static void on_result(Scope *s, const char *result, void *userdata) {
        say("result", result);
}

static int start(const char *name) {
        ScopeSpec spec = {
                .name = name,
                .slice = "cube.slice",
                .description = "A test",
                .pid = getpid(),
                .mem_max = scope_memory_max(MIB(256)),
                .mem_swap_max = MIB(256),
                .cpu_quota_usec = 500000,
                .tasks_max = 64,
                .stop_timeout_usec = 15 * USEC_PER_SEC,
        };
        return scope_start(units, &spec, on_done, NULL, &scope);
}

static int on_line(char *line) {
        unsigned long long a, b;
        char name[200];
        int r = -EINVAL;

        if (sscanf(line, "start %199s", name) == 1)
                r = start(name);
        else if (sscanf(line, "adopt %199s", name) == 1)
                r = scope_adopt(units, name, &scope);
        else if (sscanf(line, "limits %llu %llu", &a, &b) == 2)
                r = scope_set_limits(scope, a, a, b, on_done, NULL);
        else if (startswith(line, "result"))
                r = scope_get_result(scope, on_result, NULL);
        else if (startswith(line, "kill"))
                r = scope_kill(scope);
        else if (startswith(line, "free")) {
                scope = scope_free(scope);
                r = 0;
        } else if (startswith(line, "quit"))
                return sd_event_exit(event, 0);
        if (r < 0)
                say("failed", strerror(-r));
        return 0;
}

static int on_stdin(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        char buf[1024];

        ssize_t n = read(fd, buf, sizeof(buf) - 1);
        if (n <= 0)
                return sd_event_exit(event, 0);
        buf[n] = 0;
        for (char *save = NULL, *line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                int r = on_line(line);
                if (r < 0)
                        return r;
        }
        return 0;
}

int main(void) {
        sd_bus *bus;

        if (sd_event_default(&event) < 0 || sd_bus_open_system(&bus) < 0 || sd_bus_attach_event(bus, event, 0) < 0 ||
            units_new(bus, &units) < 0 || sd_event_add_io(event, NULL, STDIN_FILENO, EPOLLIN, on_stdin, NULL) < 0) {
                fputs("scope-driver: can't set up\n", stderr);
                return EXIT_FAILURE;
        }
        say("ready", "");
        int r = sd_event_loop(event);
        scope_free(scope);
        units_free(units);
        sd_bus_flush_close_unref(bus);
        sd_event_unref(event);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
