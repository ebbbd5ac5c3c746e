/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "daemon/copy-proto.h"
#include "daemon/guest-copy.h"
#include "daemon/manager.h"
#include "daemon/tool.h"

#define COPY_FD 3

struct GuestCopy {
        Sandbox *sandbox;          /* only while a request is under way: it may be gone before us */
        GuestCopyDone done;
        void *userdata;
        bool requested, forgotten; /* as in a GuestCommand */
        bool running;              /* the tool: its end will be told */

        Tool *tool;
        int fd;                    /* to it */
        sd_event_source *source;
        const char *broken;        /* what it did wrong */
};

/* The tool may hang in a read from a FUSE file system, where not even SIGKILL ends it at once: it is not waited for. */
GuestCopy *guest_copy_free(GuestCopy *c) {
        if (!c)
                return NULL;
        c->source = sd_event_source_disable_unref(c->source);
        c->fd = safe_close(c->fd);
        if (c->running)
                tool_kill(c->tool);
        else
                c->tool = tool_free(c->tool);
        c->forgotten = true;
        if (!c->requested && !c->running)
                free(c);
        return NULL;
}

/* Its end is the end of all. */
static void break_off(GuestCopy *c, const char *why) {
        c->broken = why;
        c->source = sd_event_source_disable_unref(c->source);
        tool_kill(c->tool);
}

static void answer(GuestCopy *c, int error, const char *text, int stream_fd) {
        CopyAnswer h = { .error = error };
        struct iovec iov[2] = { { &h, sizeof(h) }, { (void *) text, strnlen(strempty(text), COPY_TEXT_MAX - 1) } };

        /* One that is gone is seen by its end. */
        int r = send_packet(c->fd, iov, iov[1].iov_len > 0 ? 2 : 1, &stream_fd, stream_fd >= 0 ? 1 : 0);
        if (r < 0 && r != -EPIPE && r != -ECONNRESET)
                break_off(c, "an answer could not be sent to it");
}

/* false: nobody waits for the answer any more, and c is gone. */
static bool answered(GuestCopy *c) {
        c->requested = false;
        if (!c->forgotten)
                return true;
        guest_copy_free(c);
        return false;
}

static void answer_error(GuestCopy *c, const sd_bus_error *error) {
        int r = sd_bus_error_get_errno(error);

        answer(c, r > 0 ? -r : -EIO, isempty(error->message) ? error->name : error->message, -EBADF);
}

static void on_stream(Sandbox *s, const sd_bus_error *error, int *fd, const uint8_t *body, size_t size, void *userdata) {
        GuestCopy *c = userdata;

        if (!answered(c))
                return;
        if (error)
                answer_error(c, error);
        else
                answer(c, 0, NULL, *fd);
}

static void on_answer(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more, void *userdata) {
        GuestCopy *c = userdata;

        if (more || !answered(c))
                return;
        if (error)
                answer_error(c, error);
        else
                answer(c, 0, NULL, -EBADF);
}

static void ask_agent(GuestCopy *c, uint32_t type, const uint8_t *body, size_t size) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        const TlvWriter w = { .data = (uint8_t *) body, .size = size };
        int r;

        if (type == AGENT_STREAM_WRITE)
                r = sandbox_open_stream(c->sandbox, AGENT_STREAM_WRITE, &w, on_stream, c, &e);
        else if (type == AGENT_MKDIR || type == AGENT_SYMLINK)
                r = sandbox_agent_request(c->sandbox, (AgentFrameType) type, &w, on_answer, c, &e);
        else {
                break_off(c, "it asked for what is no part of a copy");
                return;
        }
        c->requested = r >= 0;
        if (r < 0)
                answer_error(c, &e);
}

static int on_request(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        uint8_t packet[sizeof(CopyRequest) + COPY_BODY_MAX];
        GuestCopy *c = userdata;
        CopyRequest h;
        size_t n_fds;

        ssize_t n = recv_packet(fd, packet, sizeof(packet), NULL, 0, &n_fds);
        if (n == -EAGAIN || n == -EINTR)
                return 0;
        if (n == 0 || n == -ECONNRESET) {
                c->source = sd_event_source_disable_unref(c->source);
                return 0;
        }
        if (n < (ssize_t) sizeof(h) || c->requested) {
                break_off(c, "it does not keep to the protocol");
                return 0;
        }
        memcpy(&h, packet, sizeof(h));
        ask_agent(c, h.type, packet + sizeof(h), (size_t) n - sizeof(h));
        return 0;
}

static void on_tool_done(Tool *tool, int r, const char *message, void *userdata) {
        GuestCopy *c = userdata;
        const char *broken = c->broken;

        c->running = false;
        if (c->forgotten) {
                guest_copy_free(c);
                return;
        }
        if (broken && r >= 0)
                r = -EIO;
        c->done(c, r, broken ? broken : message, c->userdata);
}

static int start_tool(GuestCopy *c, const GuestCopySpec *spec, int tool_fd) {
        const char *const argv[] = { spec->tools->cube_image, "copy-in", spec->path, NULL };
        ToolSpec tool = TOOL_SPEC_INIT;

        tool.argv = argv;
        tool.fds[0] = spec->fd;
        tool.fds[COPY_FD] = tool_fd;
        if (spec->tools->uid != (uid_t) -1) {
                tool.uid = spec->uid;
                tool.gid = spec->tools->gid;
        }
        return tool_start(c->sandbox->manager->event, &tool, on_tool_done, NULL, c, &c->tool);
}

int guest_copy_start(Sandbox *s, const GuestCopySpec *spec, GuestCopyDone done, void *userdata, GuestCopy **ret) {
        _cleanup_close_ int theirs = -EBADF;
        int ends[2];

        GuestCopy *c = new0(GuestCopy, 1);
        if (!c)
                return -ENOMEM;
        *c = (GuestCopy) { .sandbox = s, .done = done, .userdata = userdata, .fd = -EBADF };
        int r = socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, ends) < 0 ? -errno : 0;
        if (r >= 0) {
                c->fd = ends[0];
                theirs = ends[1];
                r = fd_set_nonblock(c->fd, true);
        }
        if (r >= 0)
                r = sd_event_add_io(s->manager->event, &c->source, c->fd, EPOLLIN, on_request, c);
        if (r >= 0)
                r = start_tool(c, spec, theirs);
        if (r < 0) {
                guest_copy_free(c);
                return r;
        }
        c->running = true;
        *ret = c;
        return 0;
}
