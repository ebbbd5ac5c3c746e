/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>

#include "base/agent-proto.h"
#include "base/tlv.h"
#include "guest/file-stream.h"
#include "guest/new-file.h"
#include "guest/transport.h"

#define FRAMES_PER_TURN 4U

typedef struct WriteStream {
        NewFile file;
        User user;
        LoopSource source;      /* only for what can be waited for */
        char *path;
        uint64_t expected;      /* bytes, UINT64_MAX when not known */
        uint64_t received;
        size_t offset;          /* within the present frame */
        bool failed;            /* and the host knows: the rest of what it sends is dropped */
} WriteStream;

static void write_stream_free(WriteStream *x) {
        if (!x)
                return;
        loop_remove(&x->source);
        new_file_done(&x->file);
        user_done(&x->user);
        free(x->path);
        free(x);
}
DEFINE_CLEANUP(WriteStream *, write_stream_free)

static void write_stream_done(Stream *s) {
        write_stream_free(s->state);
}

static void on_file(LoopSource *source, uint32_t events) {
        stream_run(source->userdata, 0);
}

/* 1: the whole frame is written, 0: the file takes no more at the moment */
static int write_frame(WriteStream *x, const uint8_t *body, size_t size) {
        while (x->offset < size) {
                ssize_t n = write(x->file.fd, body + x->offset, size - x->offset);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return errno == EAGAIN ? 0 : -errno;
                }
                x->offset += (size_t) n;
        }
        x->offset = 0;
        x->received += size;
        return 1;
}

/* The host's verdict: a file that it could not read to the end is not put in place. */
static int parse_end(const uint8_t *body, size_t size, uint32_t *ret_error) {
        TlvReader reader = TLV_READER_INIT(body, size);
        Tlv t;
        int r;

        *ret_error = 0;
        while ((r = tlv_next(&reader, &t)) > 0) {
                if (t.tag == AGENT_TAG_ERRNO)
                        r = tlv_get_u32(&t, ret_error);
                else if (t.tag != AGENT_TAG_MESSAGE)
                        r = -EBADMSG;
                if (r < 0)
                        return r;
        }
        return r;
}

static int finish_file(WriteStream *x, const uint8_t *body, size_t size) {
        uint32_t error;

        int r = parse_end(body, size, &error);
        if (r < 0)
                return r;
        if (error != 0)
                return -ECANCELED;
        if (x->expected != UINT64_MAX && x->received != x->expected)
                return -EBADMSG;
        return new_file_finish(&x->file, &x->user);
}

static void write_drop(WriteStream *x) {
        loop_remove(&x->source);
        new_file_done(&x->file);
}

/* The host hears at once, but is let finish: were the connection closed under its writes, it might
 * see those fail and never read why. */
static int write_failed(Stream *s, WriteStream *x, int error) {
        write_drop(x);
        stream_put_end(s, error, x->path);
        x->failed = true;
        return 1;
}

/* 1: goes on, 0: wait for more, or the stream has ended */
static int handle_frame(Stream *s, WriteStream *x) {
        const uint8_t *body;
        FrameHeader h;

        int r = stream_read_frame(s);
        if (r < 0) {
                stream_free(s);
                return 0;
        }
        if (r == 0)
                return 0;
        (void) frame_parser_peek(&s->parser, &h, &body);

        if (h.type == AGENT_END) {
                if (!x->failed) {
                        r = finish_file(x, body, h.len);
                        write_drop(x);
                        stream_put_end(s, r, x->path);
                }
                stream_finish(s);
                return 0;
        }
        if (h.type != AGENT_DATA) {
                stream_end(s, -EBADMSG, x->path);
                return 0;
        }
        if (!x->failed) {
                r = write_frame(x, body, h.len);
                if (r == 0)
                        return 0;
                if (r < 0)
                        r = write_failed(s, x, r);
        }
        frame_parser_next(&s->parser);
        return 1;
}

static void write_stream_run(Stream *s, uint32_t events) {
        WriteStream *x = s->state;

        for (unsigned i = 0; i < FRAMES_PER_TURN; i++)
                if (handle_frame(s, x) == 0)
                        return;
        stream_wake(s);
}

static void write_stream_freeze(Stream *s) {
        WriteStream *x = s->state;

        if (!x->failed && !s->finishing)
                (void) write_failed(s, x, -ECANCELED);
}

static int write_stream_open(WriteStream *x, Stream *s, const Request *q) {
        mode_t mode = request_has(q, AGENT_TAG_MODE) ? (mode_t) q->mode : (mode_t) -1;

        int r = new_file_open(&x->file, x->path, mode, !q->user, &x->user);
        if (r < 0)
                return r;
        x->expected = request_has(q, AGENT_TAG_SIZE) ? q->size : UINT64_MAX;

        /* Finds out before the transfer that there is no room, where the file system can tell. */
        if (x->file.directory_fd >= 0 && q->size > 0 && q->size <= INT64_MAX &&
            fallocate(x->file.fd, FALLOC_FL_KEEP_SIZE, 0, (off_t) q->size) < 0 &&
            (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
                return -errno;

        r = loop_add(&s->agent->loop, &x->source, x->file.fd, EPOLLOUT|EPOLLET, on_file, s);
        return r == -EPERM ? 0 : r; /* always ready */
}

void write_stream_start(Stream *s, Request *q) {
        static const StreamKind kind = {
                .run = write_stream_run,
                .done = write_stream_done,
                .freeze = write_stream_freeze,
        };
        _cleanup_(write_stream_freep) WriteStream *x = NULL;

        x = new0(WriteStream, 1);
        if (!x) {
                stream_answer_error(s, -ENOMEM, "%s: out of memory", q->path);
                return;
        }
        x->file.fd = x->file.directory_fd = -EBADF;
        x->path = TAKE_PTR(q->path);

        int r = user_find(q->user, &x->user);
        if (r < 0) {
                stream_answer_error(s, r, "user %s: %s", strempty(q->user),
                                    r == -ENOENT ? "not in the guest's /etc/passwd" : strerror(-r));
                return;
        }
        r = write_stream_open(x, s, q);
        if (r < 0) {
                stream_answer_error(s, r, "%s: %s", x->path, strerror(-r));
                return;
        }

        frame_parser_done(&s->parser);
        frame_parser_init(&s->parser, AGENT_DATA_MAX);
        stream_set_kind(s, &kind, TAKE_PTR(x));
        stream_answer_ok(s, NULL);
}
