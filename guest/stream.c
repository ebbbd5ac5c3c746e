/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/agent-proto.h"
#include "guest/file-stream.h"
#include "guest/log.h"
#include "guest/process-stream.h"
#include "guest/stream.h"
#include "guest/tcp-stream.h"
#include "guest/transport.h"

static const struct {
        uint16_t type;
        void (*start)(Stream *s, Request *q);
} starters[] = {
        { AGENT_STREAM_PROCESS, process_stream_start },
        { AGENT_STREAM_WAIT, wait_stream_start },
        { AGENT_STREAM_READ, read_stream_start },
        { AGENT_STREAM_WRITE, write_stream_start },
        { AGENT_STREAM_TCP, tcp_stream_start },
};

void stream_set_kind(Stream *s, const StreamKind *kind, void *state) {
        assert(!s->kind);
        s->kind = kind;
        s->state = state;
}

static void stream_put(Stream *s, uint16_t type, const TlvWriter *body) {
        int r = body ? tlv_writer_finish(body) : 0;
        if (r >= 0)
                r = outbox_put_frame(&s->out, type, 0, s->id, body ? body->data : NULL, body ? body->size : 0);
        if (r < 0) {
                log_error("stream answer lost: %s", strerror(-r));
                stream_finish(s);
        }
}

void stream_answer_ok(Stream *s, const TlvWriter *body) {
        stream_put(s, AGENT_OK, body);
        stream_wake(s);
}

void stream_answer_error(Stream *s, int error, const char *format, ...) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        char message[4096 + 256];
        va_list ap;

        va_start(ap, format);
        vsnprintf(message, sizeof(message), format, ap);
        va_end(ap);

        tlv_put_u32(&w, AGENT_TAG_ERRNO, (uint32_t) -error);
        tlv_put_str(&w, AGENT_TAG_MESSAGE, message);
        stream_put(s, AGENT_ERROR, &w);
        stream_finish(s);
}

void stream_put_end(Stream *s, int error, const char *what) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        char message[4096 + 256];

        tlv_put_u32(&w, AGENT_TAG_ERRNO, (uint32_t) -error);
        if (error < 0) {
                snprintf(message, sizeof(message), "%s: %s", what, strerror(-error));
                tlv_put_str(&w, AGENT_TAG_MESSAGE, message);
        }
        stream_put(s, AGENT_END, &w);
        stream_wake(s);
}

void stream_end(Stream *s, int error, const char *what) {
        stream_put_end(s, error, what);
        stream_finish(s);
}

void stream_wake(Stream *s) {
        (void) loop_rearm(&s->source);
}

void stream_finish(Stream *s) {
        s->finishing = true;
        stream_wake(s);
}

void stream_free(Stream *s) {
        if (s->kind)
                s->kind->done(s);
        LIST_REMOVE(s->agent->streams, s);
        loop_remove(&s->source);
        safe_close(s->fd);
        frame_parser_done(&s->parser);
        outbox_done(&s->out);
        free(s);
}

int stream_read_frame(Stream *s) {
        static uint8_t buf[AGENT_DATA_MAX];
        const uint8_t *body;
        FrameHeader h;

        while (!frame_parser_peek(&s->parser, &h, &body)) {
                ssize_t n = read(s->fd, buf, MIN(sizeof(buf), frame_parser_missing(&s->parser)));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? 0 : -errno;
                if (n == 0)
                        return -EPIPE;
                n = frame_parser_feed(&s->parser, buf, (size_t) n);
                if (n < 0)
                        return (int) n;
        }
        return 1;
}

static void stream_dispatch(Stream *s, uint16_t type, Request *q) {
        for (size_t i = 0; i < ELEMENTSOF(starters); i++)
                if (starters[i].type == type) {
                        if (!s->agent->claimed)
                                stream_answer_error(s, -EAGAIN, "not claimed yet");
                        else if (s->agent->frozen)
                                stream_answer_error(s, -EAGAIN, "the file system is frozen");
                        else
                                starters[i].start(s, q);
                        return;
                }
        stream_answer_error(s, -EOPNOTSUPP, "request %u belongs on the control stream", type);
}

static void stream_run_first(Stream *s) {
        _cleanup_request_ Request q = {};
        char message[REQUEST_MESSAGE_MAX];
        const uint8_t *body;
        FrameHeader h;

        int r = stream_read_frame(s);
        if (r == 0)
                return;
        if (r < 0) {
                stream_free(s);
                return;
        }

        (void) frame_parser_peek(&s->parser, &h, &body);
        s->id = h.id;
        r = request_parse(&q, &h, body, message);
        frame_parser_next(&s->parser);
        if (r < 0)
                stream_answer_error(s, r, "%s", message);
        else
                stream_dispatch(s, h.type, &q);
}

void stream_run(Stream *s, uint32_t events) {
        int r = outbox_flush(&s->out, s->fd);
        if (r < 0 || (r > 0 && s->finishing))
                stream_free(s);
        else if (r > 0 && s->kind)
                s->kind->run(s, events);
        else if (r > 0)
                stream_run_first(s);
}

static void on_stream(LoopSource *source, uint32_t events) {
        stream_run(source->userdata, events);
}

static int stream_new(Agent *a, int fd) {
        Stream *s = new0(Stream, 1);
        if (!s)
                return -ENOMEM;

        int r = loop_add(&a->loop, &s->source, fd, LOOP_EDGES, on_stream, s);
        if (r < 0) {
                free(s);
                return r;
        }
        s->agent = a;
        s->fd = fd;
        frame_parser_init(&s->parser, AGENT_FRAME_MAX);
        LIST_PREPEND(a->streams, s);
        return 0;
}

static void on_listen(LoopSource *source, uint32_t events) {
        Agent *a = source->userdata;
        _cleanup_close_ int fd = -EBADF;

        int r = transport_accept(a->listen_fd, &fd);
        if (r >= 0) {
                r = stream_new(a, fd);
                if (r >= 0)
                        TAKE_FD(fd);
        }
        /* Not a word about -EPERM: a program in the guest could fill the log with it. */
        if (r < 0 && r != -EAGAIN && r != -ECONNABORTED && r != -EPERM)
                log_warning("stream not accepted: %s", strerror(-r));
}

int streams_listen(Agent *a) {
        int r = transport_listen(&a->listen_fd);
        if (r < 0)
                return r;
        return loop_add(&a->loop, &a->listen_source, a->listen_fd, EPOLLIN, on_listen, a);
}

bool stream_in_doubt(Stream *s) {
        s->doubtful = !control_settled(&s->agent->control);
        s->agent->doubts |= s->doubtful;
        return s->doubtful;
}

void streams_judge(Agent *a) {
        if (!a->doubts)
                return;
        a->doubts = false;
        for (Stream *s = a->streams; s; s = s->list_next)
                if (s->doubtful)
                        stream_wake(s);
}

static void drop_waiting(Agent *a) {
        /* No more than the queue holds; programs in the guest may go on connecting. */
        for (unsigned i = 0; i < SOMAXCONN; i++) {
                _cleanup_close_ int fd = -EBADF;

                if (transport_accept(a->listen_fd, &fd) == -EAGAIN)
                        return;
        }
}

void streams_abandon(Agent *a) {
        drop_waiting(a);
        for (Stream *s = a->streams, *next; s; s = next) {
                next = s->list_next;
                if (s->kind && s->kind->abandon)
                        s->kind->abandon(s);
                else
                        stream_free(s);
        }
}

void streams_freeze(Agent *a) {
        for (Stream *s = a->streams, *next; s; s = next) {
                next = s->list_next;
                if (s->kind && s->kind->freeze)
                        s->kind->freeze(s);
        }
}

void streams_done(Agent *a) {
        while (a->streams)
                stream_free(a->streams);
        loop_remove(&a->listen_source);
        a->listen_fd = safe_close(a->listen_fd);
}
