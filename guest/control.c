/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "base/agent-proto.h"
#include "guest/agent.h"
#include "guest/dispatch.h"
#include "guest/log.h"
#include "guest/request.h"
#include "guest/stream.h"
#include "guest/task.h"
#include "guest/transport.h"

#define RETRY_FIRST_USEC (50U * USEC_PER_MSEC)
#define RETRY_LAST_USEC (2U * USEC_PER_SEC)
/* Answers that wait to be read before requests and listings pause. */
#define CONTROL_OUT_MAX (512U * 1024U)
#define REQUESTS_PER_TURN 16U

static void on_control(LoopSource *s, uint32_t events);

static void control_disconnect(Control *c, int error) {
        if (c->state == CONTROL_CONNECTED)
                log_warning("control stream lost: %s", error < 0 ? strerror(-error) : "closed by the host");

        loop_remove(&c->source);
        c->fd = safe_close(c->fd);
        frame_parser_done(&c->parser);
        outbox_done(&c->out);
        c->generation++;
        c->state = CONTROL_WAITING;
        tasks_wake(c);
        streams_judge(c->agent);

        (void) loop_set_timer(&c->retry, c->retry_usec);
        c->retry_usec = MIN(c->retry_usec * 2, RETRY_LAST_USEC);
}

static int put_ready(Control *c) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        struct utsname uts;
        struct sysinfo si;

        if (uname(&uts) < 0 || sysinfo(&si) < 0)
                return -errno;

        tlv_put_u32(&w, AGENT_TAG_VERSION, AGENT_PROTO_VERSION);
        tlv_put_str(&w, AGENT_TAG_KERNEL_RELEASE, uts.release);
        tlv_put_u32(&w, AGENT_TAG_CPUS, (uint32_t) get_nprocs_conf());
        tlv_put_u64(&w, AGENT_TAG_MEM_BYTES, (uint64_t) si.totalram * si.mem_unit);
        int r = tlv_writer_finish(&w);
        if (r < 0)
                return r;
        return outbox_put_frame(&c->out, AGENT_READY, 0, 0, w.data, w.size);
}

static void control_connected(Control *c) {
        c->state = CONTROL_CONNECTED;
        c->retry_usec = RETRY_FIRST_USEC;

        int r = put_ready(c);
        if (r < 0)
                control_disconnect(c, r);
        else
                (void) loop_rearm(&c->source);
}

static void control_connect(Control *c) {
        int r = transport_connect(&c->fd);
        bool now = r > 0;

        if (r >= 0) {
                c->state = CONTROL_CONNECTING;
                r = loop_add(&c->agent->loop, &c->source, c->fd, LOOP_EDGES, on_control, c);
        }
        if (r < 0)
                control_disconnect(c, r);
        else if (now)
                control_connected(c);
}

static void on_retry(LoopSource *s, uint32_t events) {
        control_connect(s->userdata);
}

/* Out of step with the host: -EMSGSIZE or -ENOMEM. Out of input: -EAGAIN. */
static int read_frame(Control *c) {
        uint8_t buf[4096];
        FrameHeader h;
        const uint8_t *body;

        while (!frame_parser_peek(&c->parser, &h, &body)) {
                ssize_t n = read(c->fd, buf, MIN(sizeof(buf), frame_parser_missing(&c->parser)));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -EPIPE;
                n = frame_parser_feed(&c->parser, buf, (size_t) n);
                if (n < 0)
                        return (int) n;
        }
        return 0;
}

static void handle_frame(Control *c) {
        _cleanup_request_ Request q = {};
        char message[REQUEST_MESSAGE_MAX];
        const uint8_t *body;
        FrameHeader h;

        if (frame_parser_peek(&c->parser, &h, &body) <= 0)
                return;

        Reply reply = { .control = c, .generation = c->generation, .id = h.id };
        int r = request_parse(&q, &h, body, message);
        frame_parser_next(&c->parser);
        if (r < 0)
                reply_error(&reply, r, "%s", message);
        else
                dispatch_request(c->agent, h.type, &q, reply);
}

static int control_run(Control *c) {
        int r = outbox_flush(&c->out, c->fd);
        if (r < 0)
                return r;
        if (!control_congested(c))
                tasks_wake(c);

        for (unsigned i = 0; !control_congested(c); i++) {
                if (i == REQUESTS_PER_TURN)
                        return loop_rearm(&c->source);
                r = read_frame(c);
                if (r == -EAGAIN) {
                        streams_judge(c->agent);
                        break;
                }
                if (r < 0)
                        return r;
                handle_frame(c);
        }

        r = outbox_flush(&c->out, c->fd);
        return r < 0 ? r : 0;
}

static void on_control(LoopSource *s, uint32_t events) {
        Control *c = s->userdata;
        int error = 0, r;

        if (c->state == CONTROL_CONNECTING) {
                socklen_t size = sizeof(error);
                if (!(events & (EPOLLOUT|EPOLLERR|EPOLLHUP)))
                        return;
                if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
                        error = errno;
                if (error != 0 || (events & (EPOLLERR|EPOLLHUP)))
                        control_disconnect(c, -error);
                else
                        control_connected(c);
                return;
        }

        r = control_run(c);
        if (r < 0)
                control_disconnect(c, r == -EPIPE ? 0 : r);
}

int control_start(Control *c, Agent *a) {
        *c = (Control) { .agent = a, .fd = -EBADF, .retry_usec = RETRY_FIRST_USEC };
        frame_parser_init(&c->parser, AGENT_FRAME_MAX);

        int r = loop_add_timer(&a->loop, &c->retry, UINT64_MAX, on_retry, c);
        if (r < 0)
                return r;
        control_connect(c);
        return 0;
}

void control_done(Control *c) {
        while (c->tasks)
                task_free(c->tasks);
        loop_remove(&c->source);
        loop_remove(&c->retry);
        c->fd = safe_close(c->fd);
        frame_parser_done(&c->parser);
        outbox_done(&c->out);
}

bool control_congested(const Control *c) {
        return outbox_size(&c->out) > CONTROL_OUT_MAX;
}

bool control_settled(const Control *c) {
        struct pollfd p = { .fd = c->fd, .events = POLLIN };

        return c->state != CONTROL_CONNECTED || poll(&p, 1, 0) == 0;
}

void control_flush(Control *c) {
        /* Errors show up again in the next event, and are dealt with there. */
        if (c->state == CONTROL_CONNECTED && outbox_flush(&c->out, c->fd) == 0)
                (void) loop_rearm(&c->source);
}

bool reply_wanted(const Reply *r) {
        return r->control->state == CONTROL_CONNECTED && r->control->generation == r->generation;
}

static void reply_put(const Reply *r, uint16_t type, uint16_t flags, const TlvWriter *body) {
        if (!reply_wanted(r))
                return;

        int k = outbox_put_frame(&r->control->out, type, flags, r->id, body ? body->data : NULL, body ? body->size : 0);
        if (k < 0)
                log_error("out of memory, answer lost");
        control_flush(r->control);
}

void reply_ok(const Reply *r, const TlvWriter *body) {
        int k = body ? tlv_writer_finish(body) : 0;
        if (k < 0)
                reply_error(r, k, "answer: %s", strerror(-k));
        else
                reply_put(r, AGENT_OK, 0, body);
}

void reply_more(const Reply *r, const TlvWriter *body) {
        reply_put(r, AGENT_OK, FRAME_FLAG_MORE, body);
}

void reply_error(const Reply *r, int error, const char *format, ...) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        char message[4096 + 256];
        va_list ap;

        va_start(ap, format);
        vsnprintf(message, sizeof(message), format, ap);
        va_end(ap);

        tlv_put_u32(&w, AGENT_TAG_ERRNO, (uint32_t) -error);
        tlv_put_str(&w, AGENT_TAG_MESSAGE, message);
        if (tlv_writer_finish(&w) >= 0)
                reply_put(r, AGENT_ERROR, 0, &w);
}

void reply_result(const Reply *r, int result, const char *what) {
        if (result < 0)
                reply_error(r, result, "%s: %s", what, strerror(-result));
        else
                reply_ok(r, NULL);
}
