/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <systemd/sd-event.h>

#include "base/fd-util.h"
#include "ctl/ctl.h"
#include "ctl/job.h"
#include "ctl/properties.h"
#include "ctl/text.h"

typedef struct JobWatch {
        sd_bus *bus;
        sd_event *event;
        const char *job;    /* path */
        int log_fd;
        char log[4096];     /* what of it is still to be printed */
        size_t log_size;
        char *step;
        bool line_open;     /* a progress line stands on the terminal */
        bool text_open;     /* the log's last line has no end yet */
        bool canceled;
} JobWatch;

static int open_log(JobWatch *w) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int fd;

        int r = ctl_call(w->bus, NULL, w->job, CUBE_BUS_JOB, "OpenLog", &reply, &error, NULL);
        if (r >= 0)
                r = sd_bus_message_read(reply, "h", &fd);
        if (r >= 0) {
                w->log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
                r = w->log_fd < 0 ? -errno : fd_set_nonblock(w->log_fd, true);
        }
        return r < 0 ? ctl_fail(r, &error, "read the job's log") : 0;
}

static void clear_line(JobWatch *w) {
        if (w->line_open)
                fputs("\r\033[K", stderr);
        w->line_open = false;
}

static void print_log(JobWatch *w, size_t size) {
        if (!ctl_options.quiet && size > 0) {
                _cleanup_free_ char *text = text_printable(w->log, size, true);
                clear_line(w);
                fputs(strempty(text), stderr);
                w->text_open = w->log[size - 1] != '\n';
        }
        w->log_size -= size;
        memmove(w->log, w->log + size, w->log_size);
}

static int on_log(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        JobWatch *w = userdata;

        ssize_t n = read(fd, w->log + w->log_size, sizeof(w->log) - w->log_size);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n <= 0) {
                print_log(w, w->log_size);
                return sd_event_exit(w->event, 0);
        }
        w->log_size += (size_t) n;
        print_log(w, text_whole(w->log, w->log_size));
        return 0;
}

static void show_step(JobWatch *w, json_object *o) {
        const char *words = properties_string(o, "Step");
        _cleanup_free_ char *step = text_printable(words, strlen(words), false);
        unsigned progress = (unsigned) properties_u64(o, "Progress");
        bool terminal = isatty(STDERR_FILENO);

        if (ctl_options.quiet || isempty(step))
                return;
        bool is_new = terminal || !w->step || !streq(w->step, step);
        if (is_new && w->text_open) {
                fputc('\n', stderr);
                w->text_open = false;
        }
        if (terminal) {
                clear_line(w);
                fprintf(stderr, "[%3u%%] %s", progress, step);
                fflush(stderr);
                w->line_open = true;
        } else if (is_new)
                fprintf(stderr, "[%3u%%] %s\n", progress, step);
        free(w->step);
        w->step = strdup(step);
}

static int on_properties(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        json_object *o = NULL;
        JobWatch *w = userdata;

        if (!sd_bus_message_get_error(m) && bus_to_json(m, &o) >= 0)
                show_step(w, o);
        json_object_put(o);
        return 1;
}

static int match_changed(sd_bus_message *m, void *userdata, sd_bus_error *ret_error) {
        const char *interface;
        json_object *o = NULL;
        JobWatch *w = userdata;

        if (sd_bus_message_read(m, "s", &interface) >= 0 && streq(interface, CUBE_BUS_JOB) &&
            bus_to_json(m, &o) >= 0)
                show_step(w, o);
        json_object_put(o);
        return 0;
}

static int on_interrupt(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata) {
        JobWatch *w = userdata;

        /* The second one leaves without waiting for the answer to the first. */
        if (w->canceled)
                return sd_event_exit(w->event, -EINTR);
        w->canceled = true;
        clear_line(w);
        ctl_note("Canceling...");
        (void) sd_bus_call_method_async(w->bus, NULL, CUBE_BUS_NAME, w->job, CUBE_BUS_JOB, "Cancel", NULL, NULL, NULL);
        return 0;
}

static int follow_job(JobWatch *w) {
        _cleanup_(sd_bus_slot_unrefp) sd_bus_slot *slot = NULL, *get = NULL;
        sigset_t mask;

        sigemptyset(&mask);
        sigaddset(&mask, SIGINT);
        sigaddset(&mask, SIGTERM);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);

        int r = sd_event_new(&w->event);
        if (r >= 0)
                r = sd_bus_attach_event(w->bus, w->event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = sd_event_add_signal(w->event, NULL, SIGINT, on_interrupt, w);
        if (r >= 0)
                r = sd_event_add_signal(w->event, NULL, SIGTERM, on_interrupt, w);
        if (r >= 0)
                r = sd_bus_match_signal(w->bus, &slot, CUBE_BUS_NAME, w->job, "org.freedesktop.DBus.Properties",
                                        "PropertiesChanged", match_changed, w);
        if (r >= 0)
                r = sd_bus_call_method_async(w->bus, &get, CUBE_BUS_NAME, w->job, "org.freedesktop.DBus.Properties",
                                             "GetAll", on_properties, w, "s", CUBE_BUS_JOB);
        if (r >= 0)
                r = sd_event_add_io(w->event, NULL, w->log_fd, EPOLLIN, on_log, w);
        if (r >= 0)
                r = sd_event_loop(w->event);
        clear_line(w);
        (void) sd_bus_detach_event(w->bus);
        return r == -EINTR ? r : r < 0 ? ctl_fail(r, NULL, "follow the job") : 0;
}

static int report_result(JobWatch *w, const char *what, const char *subject, bool print) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        json_object *o;

        int r = properties_get(w->bus, w->job, CUBE_BUS_JOB, &o, &error);
        if (r < 0)
                return ctl_fail(r, &error, "learn how it ended");

        const char *state = properties_string(o, "State");
        if (streq(state, "done")) {
                if (print)
                        puts(properties_string(o, "Template"));
                r = fflush(stdout) == 0 ? 0 : -EIO;
        } else {
                const char *text = properties_string(o, "Error");
                r = ctl_fail_text(-EIO, isempty(text) ? state : text, "%s %s", what, subject);
        }
        json_object_put(o);
        return r;
}

int job_follow(sd_bus *bus, const char *path, const char *what, const char *subject, bool print) {
        JobWatch w = { .bus = bus, .job = path, .log_fd = -EBADF };

        int r = open_log(&w);
        if (r >= 0)
                r = follow_job(&w);
        if (r >= 0)
                r = report_result(&w, what, subject, print);
        sd_event_unref(w.event);
        safe_close(w.log_fd);
        free(w.step);
        return r;
}
