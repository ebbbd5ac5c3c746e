/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/polkit-agent.h"
#include "ctl/text.h"

CtlOptions ctl_options = {
        .legend = true,
        .pager = true,
        .ask_password = true,
};

static sd_bus *connection = NULL;

void ctl_reset_getopt(void) {
        /* glibc: also forgets what it had permuted. */
        optind = 0;
}

int ctl_check_arguments(int argc, char **argv, int least, int most) {
        int n = argc - optind;

        if (n < least)
                return ctl_usage("'%s' needs more arguments.", argv[0]);
        if (most >= 0 && n > most)
                return ctl_usage("'%s' does not take '%s'.", argv[0], argv[optind + most]);
        return 0;
}

/* Each of these tells what may come from a guest: it stays on the line on which it is told, but for the reason of a
 * failure, which may be a list of lines. */

static void tell(const char *format, va_list ap) {
        _cleanup_free_ char *text = NULL;
        if (vasprintf(&text, format, ap) < 0) {
                text = NULL;
                return;
        }

        _cleanup_free_ char *printable = text_printable(text, strlen(text), false);
        fprintf(stderr, "%s\n", strempty(printable));
}

static void tell_failure(const char *why, const char *format, va_list ap) {
        _cleanup_free_ char *what = NULL;
        if (vasprintf(&what, format, ap) < 0)
                what = NULL;

        _cleanup_free_ char *printable = text_printable(strempty(what), strlen(strempty(what)), false),
                            *reason = text_printable(why, strlen(why), true);
        fprintf(stderr, "Failed to %s: %s\n", strempty(printable), strempty(reason));
}

int ctl_fail(int r, const sd_bus_error *error, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        tell_failure(client_error_text(error, r), format, ap);
        va_end(ap);
        return r < 0 ? r : -EIO;
}

int ctl_fail_text(int r, const char *why, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        tell_failure(why, format, ap);
        va_end(ap);
        return r;
}

int ctl_usage(const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        tell(format, ap);
        va_end(ap);
        return -EINVAL;
}

void ctl_note(const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        tell(format, ap);
        va_end(ap);
}

static void disconnect(void) {
        connection = sd_bus_flush_close_unref(connection);
}

int ctl_connect(sd_bus **ret) {
        if (!connection) {
                if (!ctl_options.host)
                        polkit_agent_open();
                int r = client_connect(ctl_options.host, ctl_options.ask_password, &connection);
                if (r < 0) {
                        ctl_note("Failed to connect to %s: %s", ctl_options.host ? ctl_options.host : "the system bus",
                                 r == -ENOENT || r == -ECONNREFUSED ? "there is none (is dbus running?)" : strerror(-r));
                        return r;
                }
                (void) atexit(disconnect);
        }

        *ret = connection;
        return 0;
}

int ctl_connect_local(sd_bus **ret) {
        if (ctl_options.host)
                return ctl_usage("This verb needs file descriptors, which do not pass through -H. Try: ssh %s cubectl ...",
                                 ctl_options.host);
        return ctl_connect(ret);
}

typedef struct Progress {
        const char *doing;
        bool shown;
} Progress;

static void show_progress(void *userdata, uint64_t waited_usec) {
        Progress *p = userdata;

        if (!p->doing || ctl_options.quiet || waited_usec < USEC_PER_SEC || !isatty(STDERR_FILENO))
                return;
        fprintf(stderr, "\r%s... %llus\033[K", p->doing, (unsigned long long) (waited_usec / USEC_PER_SEC));
        fflush(stderr);
        p->shown = true;
}

int ctl_call_message(sd_bus *bus, const char *doing, sd_bus_message *call, sd_bus_message **ret_reply,
                     sd_bus_error *error) {
        Progress p = { .doing = doing };

        int r = client_call(bus, call, show_progress, &p, ret_reply, error);
        if (p.shown)
                fputs("\r\033[K", stderr);
        return r;
}

static int call_va(sd_bus *bus, const char *doing, const char *path, const char *interface, const char *member,
                   sd_bus_message **ret_reply, sd_bus_error *error, const char *types, va_list ap) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL;

        int r = sd_bus_message_new_method_call(bus, &call, CUBE_BUS_NAME, path, interface, member);
        if (r >= 0 && types)
                r = sd_bus_message_appendv(call, types, ap);
        if (r < 0)
                return r;
        return ctl_call_message(bus, doing, call, ret_reply, error);
}

int ctl_call(sd_bus *bus, const char *doing, const char *path, const char *interface, const char *member,
             sd_bus_message **ret_reply, sd_bus_error *error, const char *types, ...) {
        va_list ap;

        va_start(ap, types);
        int r = call_va(bus, doing, path, interface, member, ret_reply, error, types, ap);
        va_end(ap);
        return r;
}

int ctl_call_sandbox(sd_bus *bus, const char *doing, const char *id, const char *member, sd_bus_message **ret_reply,
                     sd_bus_error *error, const char *types, ...) {
        char path[CUBE_BUS_PATH_MAX];
        va_list ap;

        va_start(ap, types);
        int r = call_va(bus, doing, client_path(path, CUBE_BUS_PATH_SANDBOX, id), CUBE_BUS_SANDBOX, member, ret_reply,
                        error, types, ap);
        va_end(ap);
        return r;
}

int ctl_append_strings(sd_bus_message *m, const char *name, char **l) {
        if (!l)
                return 0;
        int r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", name);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "as");
        if (r >= 0)
                r = sd_bus_message_append_strv(m, l);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

int ctl_check_id(const char *id) {
        if (sandbox_id_valid(id))
                return 0;
        return ctl_usage("'%s' is not a sandbox id (12 to 20 of a-z and 0-9, a letter first); 'cubectl list' shows them.",
                         id);
}
