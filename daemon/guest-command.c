/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/epoll.h>

#include "base/fd-util.h"
#include "base/frame.h"
#include "daemon/guest-command.h"
#include "daemon/manager.h"
#include "dbus/bus-errors.h"

#define OUTPUT_BYTES KIB(16)
/* It has ended, but something it left behind holds its output open: how long nothing may come before that is given up. */
#define DRAIN_USEC (2 * USEC_PER_SEC)
/* One frame of three numbers. */
#define EXIT_FRAME_MAX 256U

struct GuestCommand {
        Sandbox *sandbox;          /* only while a request is under way: it may be gone before us */
        sd_event *event;
        const GuestCommandCallbacks *callbacks;
        void *userdata;
        bool forgotten;            /* by its owner; a request is still under way */
        bool requested;            /* one is */

        uint32_t pid;
        int output_fds[2], wait_fd;
        sd_event_source *output[2], *wait, *drain;
        FrameParser parser;
        bool exited, moved;        /* moved: something was printed since the drain timer was set */
        AgentExit exit;
};

static void close_output(GuestCommand *c, size_t i) {
        c->output[i] = sd_event_source_disable_unref(c->output[i]);
        c->output_fds[i] = safe_close(c->output_fds[i]);
}

static void release(GuestCommand *c) {
        c->wait = sd_event_source_disable_unref(c->wait);
        c->drain = sd_event_source_disable_unref(c->drain);
        c->wait_fd = safe_close(c->wait_fd);
        close_output(c, 0);
        close_output(c, 1);
}

GuestCommand *guest_command_free(GuestCommand *c) {
        if (!c)
                return NULL;
        release(c);
        c->forgotten = true;
        /* Else the answer to the request does it. */
        if (c->requested)
                return NULL;
        frame_parser_done(&c->parser);
        free(c);
        return NULL;
}

static void command_done(GuestCommand *c, const sd_bus_error *error) {
        AgentExit exit = c->exit; /* c may go in there */

        release(c);
        c->callbacks->done(c, error, error ? NULL : &exit, c->userdata);
}

static void command_lost(GuestCommand *c, int r) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;

        (void) sd_bus_error_setf(&e, BUS_ERROR_GUEST_FAILED, "The connection to process %u in the guest is lost: %s", c->pid,
                                 strerror(-r));
        command_done(c, &e);
}

static int on_drain(sd_event_source *source, uint64_t usec, void *userdata) {
        GuestCommand *c = userdata;

        if (!c->moved) {
                command_done(c, NULL);
                return 0;
        }
        c->moved = false;
        int r = sd_event_source_set_time_relative(source, DRAIN_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* Done is what has ended and has nothing more to say. */
static void check_end(GuestCommand *c) {
        if (!c->exited)
                return;
        if (!c->output[0] && !c->output[1]) {
                command_done(c, NULL);
                return;
        }
        if (c->drain)
                return;
        int r = sd_event_add_time_relative(c->event, &c->drain, CLOCK_MONOTONIC, DRAIN_USEC, 0, on_drain, c);
        /* What has come while we had no CPU goes first. */
        if (r >= 0)
                r = sd_event_source_set_priority(c->drain, SD_EVENT_PRIORITY_IDLE);
        if (r < 0)
                command_lost(c, r);
}

static int on_output(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        GuestCommand *c = userdata;
        char text[OUTPUT_BYTES];

        ssize_t n = read(fd, text, sizeof(text));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n <= 0) {
                close_output(c, fd == c->output_fds[1]);
                check_end(c);
                return 0;
        }
        c->moved = true;
        if (c->callbacks->output)
                c->callbacks->output(c, text, (size_t) n, c->userdata);
        return 0;
}

/* 1 when the frame is whole. */
static int take_exit(GuestCommand *c) {
        const uint8_t *body;
        FrameHeader h;

        if (frame_parser_peek(&c->parser, &h, &body) <= 0)
                return 0;
        if (h.type != AGENT_EXITED)
                return -EBADMSG;
        int r = agent_exit_parse(body, h.len, &c->exit);
        return r < 0 ? r : 1;
}

static int on_wait(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        GuestCommand *c = userdata;
        uint8_t buf[EXIT_FRAME_MAX];
        int r = -ECONNRESET;

        ssize_t n = read(fd, buf, MIN(frame_parser_missing(&c->parser), sizeof(buf)));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n > 0) {
                n = frame_parser_feed(&c->parser, buf, (size_t) n);
                r = n < 0 ? (int) n : take_exit(c);
                if (r == 0)
                        return 0;
        }
        if (r < 0) {
                command_lost(c, r);
                return 0;
        }
        c->exited = true;
        c->wait = sd_event_source_disable_unref(c->wait);
        check_end(c);
        return 0;
}

static int watch(GuestCommand *c, int fd, sd_event_io_handler_t handler, sd_event_source **ret) {
        int r = fd_set_nonblock(fd, true);

        if (r >= 0)
                r = sd_event_add_io(c->event, ret, fd, EPOLLIN, handler, c);
        /* A guest can print for ever: all others first. */
        return r < 0 ? r : sd_event_source_set_priority(*ret, SD_EVENT_PRIORITY_IDLE);
}

static void on_wait_stream(Sandbox *s, const sd_bus_error *error, int *fd, const uint8_t *body, size_t size,
                           void *userdata) {
        GuestCommand *c = userdata;

        c->requested = false;
        if (c->forgotten) {
                guest_command_free(c);
                return;
        }
        if (error) {
                command_done(c, error);
                return;
        }
        c->wait_fd = TAKE_FD(*fd);
        int r = watch(c, c->wait_fd, on_wait, &c->wait);
        if (r < 0) {
                command_lost(c, r);
                return;
        }
        if (c->callbacks->started)
                c->callbacks->started(c, c->userdata);
}

static int open_wait(GuestCommand *c, sd_bus_error *error) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(256);

        tlv_put_u32(&w, AGENT_TAG_PID, c->pid);
        int r = sandbox_open_stream(c->sandbox, AGENT_STREAM_WAIT, &w, on_wait_stream, c, error);
        c->requested = r >= 0;
        return r;
}

static void on_exec(Sandbox *s, const sd_bus_error *error, uint32_t pid, int *fds, size_t n_fds, void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        GuestCommand *c = userdata;
        int r = 0;

        c->requested = false;
        if (c->forgotten) {
                guest_command_free(c);
                return;
        }
        if (error) {
                command_done(c, error);
                return;
        }
        c->pid = pid;
        /* stdin stays where it is, and is closed: the program finds its end. */
        for (size_t i = 0; i < ELEMENTSOF(c->output) && r >= 0; i++) {
                c->output_fds[i] = TAKE_FD(fds[i + 1]);
                r = watch(c, c->output_fds[i], on_output, &c->output[i]);
        }
        if (r < 0)
                command_lost(c, r);
        else if (open_wait(c, &e) < 0)
                command_done(c, &e);
}

int guest_command_start(Sandbox *s, const ExecSpec *spec, const GuestCommandCallbacks *callbacks, void *userdata,
                        GuestCommand **ret, sd_bus_error *error) {
        GuestCommand *c = new0(GuestCommand, 1);
        if (!c)
                return sd_bus_error_set_errno(error, ENOMEM);

        *c = (GuestCommand) {
                .sandbox = s,
                .event = s->manager->event,
                .callbacks = callbacks,
                .userdata = userdata,
                .output_fds = { -EBADF, -EBADF },
                .wait_fd = -EBADF,
        };
        frame_parser_init(&c->parser, EXIT_FRAME_MAX);
        int r = sandbox_exec(s, spec, on_exec, c, error);
        if (r < 0) {
                guest_command_free(c);
                return r;
        }
        c->requested = true;
        *ret = c;
        return 0;
}
