/* SPDX-License-Identifier: Apache-2.0 */

/* What others ask of a running guest: requests on the agent's control stream, streams, programs,
 * the console. Each request is a small object between the caller's callback and the VMM client's. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "daemon/log.h"
#include "daemon/sandbox-private.h"
#include "dbus/bus-errors.h"

/* A directory of a million files takes its time; a guest that is stuck shall not hold us for ever. */
#define AGENT_TIMEOUT_USEC (120 * USEC_PER_SEC)
/* Longer than its VMM waits for it, a minute for the connection and another for the answer: what the VMM says tells more, and a
 * program that was started in the end is told of. */
#define STREAM_TIMEOUT_USEC (150 * USEC_PER_SEC)
#define AGENT_ASK_TIMEOUT_USEC (5 * USEC_PER_SEC)

int sandbox_set_error(const Sandbox *s, sd_bus_error *error, int r, const char *message) {
        /* The same errors come from a sandbox that goes on, when only its agent or a stream is gone. */
        if ((r == -ECONNRESET || r == -ENOTCONN) && s->exit_reason == VMM_EXIT_NONE)
                return sd_bus_error_setf(error, BUS_ERROR_GUEST_FAILED, "A request to sandbox %s failed: %s", s->id,
                                         isempty(message) ? strerror(-r) : message);
        if (r == -ECONNRESET || r == -ENOTCONN)
                return sd_bus_error_setf(error, BUS_ERROR_GUEST_FAILED, "Sandbox %s ended (%s) before it answered", s->id,
                                         vmm_exit_reason_to_string(s->exit_reason));
        /* What the guest said of a connection of its own. */
        if (r == -EREMOTEIO)
                return sd_bus_error_setf(error, BUS_ERROR_GUEST_FAILED, "A request to sandbox %s failed: %s", s->id,
                                         isempty(message) ? strerror(-r) : message);
        /* The VMM is going down already, by a signal. */
        if (r == -EPROTO)
                return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING, "Sandbox %s is not running any more: %s", s->id,
                                         strempty(message));
        if (r == -ETIMEDOUT)
                return sd_bus_error_setf(error, BUS_ERROR_GUEST_TIMEOUT, "The guest of sandbox %s did not answer in time: %s",
                                         s->id, strempty(message));
        /* A guest can be the one who says it, of a mount point for one: then there are words of its own. */
        if (r == -EBUSY && !message)
                return sd_bus_error_setf(error, BUS_ERROR_BUSY, "Sandbox %s has too many requests under way", s->id);
        if (r == -EBADMSG || r == -EMSGSIZE)
                return sd_bus_error_setf(error, BUS_ERROR_GUEST_FAILED, "The answer of sandbox %s can't be used: %s", s->id,
                                         isempty(message) ? strerror(-r) : message);
        return sd_bus_error_set_errnof(error, -r, "%s", isempty(message) ? strerror(-r) : message);
}

int sandbox_check_running(const Sandbox *s, sd_bus_error *error) {
        if (s->state == SANDBOX_PAUSED || s->state == SANDBOX_FAILED)
                return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING,
                                         "Sandbox %s is %s, not running; resume it first: cubectl resume %s", s->id,
                                         sandbox_state_to_string(s->state), s->id);
        if (s->state != SANDBOX_RUNNING || !s->priv->vmm)
                return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING, "Sandbox %s is %s, not running", s->id,
                                         sandbox_state_to_string(s->state));
        return 0;
}

/* Requests. */

typedef struct Request {
        Sandbox *sandbox;
        AgentAnswer answer;
        void *userdata;
} Request;

static void on_answer(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size, bool more,
                      void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Request *q = userdata;

        if (error < 0)
                (void) sandbox_set_error(q->sandbox, &e, error, message);
        if (q->answer)
                q->answer(q->sandbox, error < 0 ? &e : NULL, body, size, more, q->userdata);
        if (!more)
                free(q);
}

static int agent_request(Sandbox *s, AgentFrameType type, const TlvWriter *body, uint64_t timeout_usec, AgentAnswer answer,
                         void *userdata, sd_bus_error *error) {
        int r = sandbox_check_running(s, error);
        if (r < 0)
                return r;

        Request *q = new0(Request, 1);
        if (!q)
                return sd_bus_error_set_errno(error, ENOMEM);
        *q = (Request) { s, answer, userdata };
        r = vmm_client_agent(s->priv->vmm, type, body, timeout_usec, on_answer, q);
        if (r < 0) {
                free(q);
                return sandbox_set_error(s, error, r, NULL);
        }
        return 0;
}

int sandbox_agent_request(Sandbox *s, AgentFrameType type, const TlvWriter *body, AgentAnswer answer,
                          void *userdata, sd_bus_error *error) {
        int r = agent_request(s, type, body, AGENT_TIMEOUT_USEC, answer, userdata, error);
        if (r >= 0)
                sandbox_touch(s);
        return r;
}

int sandbox_agent_wait(Sandbox *s, AgentFrameType type, const TlvWriter *body, AgentAnswer answer, void *userdata,
                       sd_bus_error *error) {
        return agent_request(s, type, body, UINT64_MAX, answer, userdata, error);
}

int sandbox_agent_ask(Sandbox *s, AgentFrameType type, const TlvWriter *body, AgentAnswer answer, void *userdata,
                      sd_bus_error *error) {
        return agent_request(s, type, body, AGENT_ASK_TIMEOUT_USEC, answer, userdata, error);
}

/* Streams. */

typedef struct Opening {
        Sandbox *sandbox;
        int fd;                /* the client's end */
        StreamDone done;
        void *userdata;
} Opening;

static void on_stream(VmmClient *c, int error, const char *message, const uint8_t *body, size_t size, bool more,
                      void *userdata) {
        _cleanup_(sd_bus_error_free) sd_bus_error e = SD_BUS_ERROR_NULL;
        Opening *o = userdata;

        if (error < 0)
                (void) sandbox_set_error(o->sandbox, &e, error, message);
        o->done(o->sandbox, error < 0 ? &e : NULL, &o->fd, body, size, o->userdata);
        safe_close(o->fd);
        free(o);
}

static int opening_send(Opening *o, AgentFrameType type, const TlvWriter *body) {
        _cleanup_close_ int theirs = -EBADF;
        int ends[2];

        if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, ends) < 0)
                return -errno;
        o->fd = ends[0];
        theirs = ends[1];
        return vmm_client_stream(o->sandbox->priv->vmm, type, body, theirs, STREAM_TIMEOUT_USEC, on_stream, o);
}

int sandbox_open_stream(Sandbox *s, AgentFrameType type, const TlvWriter *body, StreamDone done, void *userdata,
                        sd_bus_error *error) {
        int r = sandbox_check_running(s, error);
        if (r < 0)
                return r;

        Opening *o = new0(Opening, 1);
        if (!o)
                return sd_bus_error_set_errno(error, ENOMEM);
        sandbox_touch(s);
        *o = (Opening) { .sandbox = s, .fd = -EBADF, .done = done, .userdata = userdata };
        r = opening_send(o, type, body);
        if (r < 0) {
                safe_close(o->fd);
                free(o);
                return sandbox_set_error(s, error, r, NULL);
        }
        return 0;
}

/* The console. */

int sandbox_open_console(Sandbox *s, int *ret_fd, sd_bus_error *error) {
        char path[64];

        if (s->priv->console_fd < 0)
                return sd_bus_error_setf(error, BUS_ERROR_NOT_RUNNING, "Sandbox %s has no console", s->id);
        /* Opened anew, so that it can only be read. */
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", s->priv->console_fd);
        int fd = open(path, O_RDONLY|O_CLOEXEC);
        if (fd < 0)
                return sd_bus_error_set_errnof(error, errno, "Can't open the console of sandbox %s: %s", s->id, strerror(errno));
        *ret_fd = fd;
        return 0;
}
