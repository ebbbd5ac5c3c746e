/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "base/frame.h"
#include "ctl/process.h"
#include "ctl/pump.h"
#include "ctl/removal.h"
#include "ctl/text.h"
#include "ctl/tty.h"

/* A second Ctrl-C within this time kills. */
#define TWICE_USEC USEC_PER_SEC
/* The process has ended, but something it left behind holds its output open: how long nothing may
 * come before that is given up. */
#define DRAIN_USEC (3 * USEC_PER_SEC)

typedef struct Process {
        sd_bus *bus;
        const char *id;
        const ExecOptions *options;
        sd_event *event;

        uint32_t pid;
        int fds[3], wait_fd;      /* the guest's; of a pty only the first two, the same twice */
        FrameParser parser;

        Pump in, out, err;
        int done_fd;

        bool exited;
        AgentExit exit;
        bool lost;                /* the wait stream ended without an answer */
        Removal removal;
        uint64_t drain_moved;     /* bytes when the drain timer was armed */
        uint64_t interrupted_usec;
} Process;

static const int forwarded[] = { SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 };

static void forwarded_signals(sigset_t *mask) {
        sigemptyset(mask);
        for (size_t i = 0; i < ELEMENTSOF(forwarded); i++)
                sigaddset(mask, forwarded[i]);
        sigaddset(mask, SIGWINCH);
}

/* A pump that is still blocked keeps its descriptor, or it would write into whatever gets that
 * number next. */
static void release_fd(int fd, const Pump *pump) {
        if (pump->done_fd <= 0 || atomic_load(&pump->done))
                safe_close(fd);
        else
                (void) shutdown(fd, SHUT_RDWR);
}

static void process_done(Process *p) {
        sigset_t mask;

        tty_restore();
        sd_event_unref(p->event);
        forwarded_signals(&mask);
        (void) sigprocmask(SIG_UNBLOCK, &mask, NULL);

        release_fd(p->fds[0], &p->in);
        release_fd(p->fds[1], &p->out);
        release_fd(p->fds[2], &p->err);
        safe_close(p->wait_fd);
        frame_parser_done(&p->parser);
        removal_done(&p->removal);
        /* done_fd stays: a pump that is still blocked may write to it until we exit. */
}

static int append_exec(sd_bus_message *m, const Process *p, char **argv) {
        const ExecOptions *o = p->options;
        uint32_t rows, cols;

        int r = sd_bus_message_append_strv(m, argv);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r >= 0)
                r = ctl_append_strings(m, "env", o->env);
        if (r >= 0 && o->user)
                r = sd_bus_message_append(m, "{sv}", "user", "s", o->user);
        if (r >= 0 && o->cwd)
                r = sd_bus_message_append(m, "{sv}", "cwd", "s", o->cwd);
        if (r >= 0 && o->timeout_usec > 0)
                r = sd_bus_message_append(m, "{sv}", "timeout", "t", o->timeout_usec);
        if (r >= 0 && o->pty) {
                tty_size(&rows, &cols);
                r = sd_bus_message_append(m, "{sv}{sv}", "rows", "u", rows, "cols", "u", cols);
        }
        return r < 0 ? r : sd_bus_message_close_container(m);
}

/* The reply owns the descriptors that are in it. */
static int keep_fds(Process *p, const int *fds, size_t n) {
        for (size_t i = 0; i < n; i++) {
                p->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
                if (p->fds[i] < 0)
                        return -errno;
        }
        return 0;
}

static int start(Process *p, char **argv) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *call = NULL, *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        char path[CUBE_BUS_PATH_MAX];
        bool pty = p->options->pty;
        int fds[3];

        int r = sd_bus_message_new_method_call(p->bus, &call, CUBE_BUS_NAME,
                                               client_path(path, CUBE_BUS_PATH_SANDBOX, p->id), CUBE_BUS_SANDBOX,
                                               pty ? "ExecPty" : "Exec");
        if (r >= 0)
                r = sd_bus_message_sensitive(call);
        if (r >= 0)
                r = append_exec(call, p, argv);
        if (r >= 0)
                r = ctl_call_message(p->bus, "Starting the command", call, &reply, &error);
        if (r >= 0)
                r = pty ? sd_bus_message_read(reply, "uh", &p->pid, &fds[0])
                        : sd_bus_message_read(reply, "uhhh", &p->pid, &fds[0], &fds[1], &fds[2]);
        if (r >= 0) {
                fds[1] = pty ? fds[0] : fds[1];
                r = keep_fds(p, fds, pty ? 2 : 3);
        }
        if (r < 0) {
                (void) ctl_fail(r, &error, "run '%s' in sandbox %s", argv[0], p->id);
                /* What a shell says of a command that can't be run. */
                if (sd_bus_error_has_name(&error, SD_BUS_ERROR_FILE_NOT_FOUND))
                        return 127;
                if (sd_bus_error_has_name(&error, SD_BUS_ERROR_ACCESS_DENIED))
                        return 126;
        }
        return r < 0 ? r : 0;
}

static int open_wait(Process *p) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int fd;

        int r = ctl_call_sandbox(p->bus, NULL, p->id, "WaitProcess", &reply, &error, "u", p->pid);
        if (r >= 0)
                r = sd_bus_message_read(reply, "h", &fd);
        if (r >= 0) {
                p->wait_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
                r = p->wait_fd < 0 ? -errno : fd_set_nonblock(p->wait_fd, true);
        }
        if (r < 0)
                return ctl_fail(r, &error, "wait for process %u in sandbox %s", p->pid, p->id);
        return 0;
}

static bool output_done(const Process *p) {
        return atomic_load(&p->out.done) && (p->options->pty || atomic_load(&p->err.done));
}

static uint64_t output_moved(const Process *p) {
        return atomic_load(&p->out.moved) + atomic_load(&p->err.moved);
}

/* Ends the loop once there is nothing more to come. */
static void check_end(Process *p) {
        if ((p->exited || p->lost) && output_done(p))
                (void) sd_event_exit(p->event, 0);
}

static int on_drain(sd_event_source *s, uint64_t usec, void *userdata) {
        Process *p = userdata;
        /* One who reads slowly gets all the time he wants, and so does who waits for a CPU. */
        bool more = pump_has_more(&p->out) || (!p->options->pty && pump_has_more(&p->err));
        uint64_t moved = output_moved(p);

        if (!more && moved == p->drain_moved)
                return sd_event_exit(p->event, 0);

        p->drain_moved = moved;
        int r = sd_event_source_set_time_relative(s, DRAIN_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static int ended(Process *p) {
        check_end(p);
        p->drain_moved = output_moved(p);
        return sd_event_add_time_relative(p->event, NULL, CLOCK_MONOTONIC, DRAIN_USEC, 0, on_drain, p);
}

static int take_exit_frame(Process *p) {
        const uint8_t *body;
        FrameHeader h;

        if (frame_parser_peek(&p->parser, &h, &body) <= 0)
                return 0;
        if (h.type != AGENT_EXITED || agent_exit_parse(body, h.len, &p->exit) < 0)
                return -EBADMSG;
        p->exited = true;
        return 1;
}

static int on_wait(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Process *p = userdata;
        uint8_t buf[256];
        int r = 0;

        ssize_t n = read(fd, buf, MIN(frame_parser_missing(&p->parser), sizeof(buf)));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n > 0) {
                n = frame_parser_feed(&p->parser, buf, (size_t) n);
                r = n < 0 ? (int) n : take_exit_frame(p);
                if (r == 0)
                        return 0;
        }

        (void) sd_event_source_set_enabled(s, SD_EVENT_OFF);
        p->lost = !p->exited;
        return ended(p);
}

static int on_pump_done(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        uint64_t n;

        (void) !read(fd, &n, sizeof(n));
        check_end(userdata);
        return 0;
}

static int on_signal_sent(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return 1;
}

static void send_signal(Process *p, int signal) {
        char path[CUBE_BUS_PATH_MAX];

        (void) sd_bus_call_method_async(p->bus, NULL, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, p->id),
                                        CUBE_BUS_SANDBOX, "SignalProcess", on_signal_sent, NULL, "uib", p->pid,
                                        (int32_t) signal, 1);
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata) {
        Process *p = userdata;
        int signal = (int) si->ssi_signo;
        uint64_t now;

        if (p->lost)
                return sd_event_exit(p->event, 0);
        if (signal == SIGINT && sd_event_now(p->event, CLOCK_MONOTONIC, &now) >= 0) {
                if (p->interrupted_usec > 0 && now - p->interrupted_usec < TWICE_USEC)
                        signal = SIGKILL;
                p->interrupted_usec = now;
        }
        /* It has ended, and we only wait for what it left behind. */
        if (p->exited)
                return sd_event_exit(p->event, 0);
        send_signal(p, signal);
        return 0;
}

static int on_resize(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata) {
        char path[CUBE_BUS_PATH_MAX];
        Process *p = userdata;
        uint32_t rows, cols;

        tty_size(&rows, &cols);
        (void) sd_bus_call_method_async(p->bus, NULL, CUBE_BUS_NAME, client_path(path, CUBE_BUS_PATH_SANDBOX, p->id),
                                        CUBE_BUS_SANDBOX, "ResizeProcess", on_signal_sent, NULL, "uuu", p->pid, rows,
                                        cols);
        return 0;
}

static int add_signals(Process *p) {
        sigset_t mask;
        int r = 0;

        forwarded_signals(&mask);
        if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0)
                return -errno;

        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(forwarded); i++)
                r = sd_event_add_signal(p->event, NULL, forwarded[i], on_signal, p);
        if (r >= 0 && p->options->pty)
                r = sd_event_add_signal(p->event, NULL, SIGWINCH, on_resize, p);
        return r;
}

static int start_pumps(Process *p) {
        int r = pump_start(&p->out, p->fds[1], STDOUT_FILENO, false, p->done_fd);
        if (r >= 0 && !p->options->pty)
                r = pump_start(&p->err, p->fds[2], STDERR_FILENO, false, p->done_fd);
        if (r >= 0)
                r = pump_start(&p->in, STDIN_FILENO, p->fds[0], true, p->done_fd);
        return r;
}

static int prepare_loop(Process *p) {
        int r = sd_event_new(&p->event);
        if (r >= 0)
                r = sd_bus_attach_event(p->bus, p->event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = add_signals(p);
        if (r >= 0)
                r = sd_event_add_io(p->event, NULL, p->wait_fd, EPOLLIN, on_wait, p);
        if (r < 0)
                return r;

        p->done_fd = eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK);
        if (p->done_fd < 0)
                return -errno;
        return sd_event_add_io(p->event, NULL, p->done_fd, EPOLLIN, on_pump_done, p);
}

static int explain_loss(Process *p) {
        const char *reason = removal_reason(&p->removal);

        if (reason)
                ctl_note("Sandbox %s ended while the command ran: %s. See: cubectl show %s", p->id, reason, p->id);
        else
                ctl_note("The connection to process %u in sandbox %s is lost. See: cubectl show %s", p->pid, p->id,
                         p->id);
        return -ECONNRESET;
}

static int run_loop(Process *p) {
        int r = prepare_loop(p);
        if (r >= 0)
                r = p->options->pty ? tty_raw() : 0;
        if (r >= 0)
                r = start_pumps(p);
        if (r >= 0)
                r = sd_event_loop(p->event);
        tty_restore();
        (void) sd_bus_detach_event(p->bus);
        if (r < 0)
                return ctl_fail(r, NULL, "follow process %u", p->pid);

        return p->exited ? client_exit_status(&p->exit) : explain_loss(p);
}

int process_run(sd_bus *bus, const char *id, const ExecOptions *options, char **argv) {
        static Process process; /* the pumps may outlive this call */
        Process *p = &process;

        *p = (Process) {
                .bus = bus, .id = id, .options = options,
                .fds = { -EBADF, -EBADF, -EBADF }, .wait_fd = -EBADF, .done_fd = -EBADF,
        };
        frame_parser_init(&p->parser, AGENT_FRAME_MAX);

        int r = removal_watch(&p->removal, bus, id);
        if (r >= 0)
                r = start(p, argv);
        if (r == 0)
                r = open_wait(p);
        if (r == 0)
                r = run_loop(p);
        process_done(p);
        return r;
}
