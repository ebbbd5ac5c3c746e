/* SPDX-License-Identifier: Apache-2.0 */

/* The logs of a sandbox: what cubed knows of its life, and the end of its console. Of its programs' output there is none here:
 * that is for who started them. */

#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "gateway/log-entries.h"
#include "gateway/op-common.h"

static int add_event(LogEntries *l, uint64_t usec, unsigned level, const char *format, ...) _printf_(4, 5);

static int add_event(LogEntries *l, uint64_t usec, unsigned level, const char *format, ...) {
        char text[256];
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        return log_entries_add(l, usec, level, "cubed", text, strlen(text));
}

static int add_life(LogEntries *l, json_object *p) {
        const char *name = info_string(p, "TemplateName"), *state = info_string(p, "State");
        bool failed = streq(state, "failed");

        int k = add_event(l, info_u64(p, "CreatedTimestamp"), LOG_LEVEL_INFO, "created from template %s",
                          *name ? name : info_string(p, "Template"));
        return k < 0 ? k : add_event(l, info_u64(p, "StateChangedTimestamp"), failed ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO,
                                     "%s", failed ? "paused, since it could not be resumed" : state);
}

/* Its VMM may write to it meanwhile, or have cut it off. */
static int add_console(LogEntries *l, sd_bus_message *reply) {
        _cleanup_free_ void *file = malloc(CONSOLE_BYTES);
        int fd;

        int k = sd_bus_message_read(reply, "h", &fd);
        if (k < 0)
                return k;
        if (!file)
                return -ENOMEM;
        ssize_t n = pread(fd, file, CONSOLE_BYTES, 0);
        return n < 0 ? -errno : log_entries_add_console(l, file, (size_t) n, wall_usec());
}

static void on_console(Request *r, sd_bus_message *reply, const sd_bus_error *error) {
        LogEntries l = {};
        ErrorText text = {};
        LogQuery q;

        if (error && sd_bus_error_has_name(error, SD_BUS_ERROR_UNKNOWN_OBJECT)) {
                reply_no_sandbox(r);
                return;
        }
        int k = log_query_parse(&r->url, request_is_v2(r), &q, &text);
        if (k >= 0)
                k = add_life(&l, r->sandbox);
        /* One that is paused has none. */
        if (k >= 0 && reply)
                k = add_console(&l, reply);
        if (k < 0)
                reply_bad(r, k, &text);
        else
                request_reply_json(r, MHD_HTTP_OK, log_entries_to_json(&l, &q, request_is_v2(r)));
        log_entries_done(&l);
}

void op_logs(Request *r) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        ErrorText error = {};
        LogQuery q;

        int k = log_query_parse(&r->url, request_is_v2(r), &q, &error);
        if (k < 0) {
                reply_bad(r, k, &error);
                return;
        }
        k = cubed_message_sandbox(r, "OpenConsole", &m);
        cubed_call(r, m, k, on_console);
}
