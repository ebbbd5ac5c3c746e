/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>

#include "base/agent-proto.h"
#include "guest/file-stream.h"
#include "guest/files.h"
#include "guest/transport.h"
#include "guest/user.h"

#define PIECES_PER_TURN 4U

typedef struct ReadStream {
        int fd;
        LoopSource source;      /* only for what can be waited for */
        char *path;
} ReadStream;

static void read_stream_free(ReadStream *x) {
        if (!x)
                return;
        loop_remove(&x->source);
        safe_close(x->fd);
        free(x->path);
        free(x);
}
DEFINE_CLEANUP(ReadStream *, read_stream_free)

static void read_stream_done(Stream *s) {
        read_stream_free(s->state);
}

static void on_file(LoopSource *source, uint32_t events) {
        stream_run(source->userdata, 0);
}

/* 1: a piece was sent, 0: wait, or the stream has ended */
static int send_piece(Stream *s, ReadStream *x) {
        static uint8_t piece[AGENT_DATA_MAX];

        ssize_t n = read(x->fd, piece, sizeof(piece));
        if (n < 0 && errno == EINTR)
                return 1;
        if (n < 0 && errno == EAGAIN)
                return 0;
        if (n <= 0) {
                stream_end(s, n < 0 ? -errno : 0, x->path);
                return 0;
        }

        int r = outbox_put_frame(&s->out, AGENT_DATA, 0, s->id, piece, (size_t) n);
        if (r < 0) {
                stream_end(s, r, x->path);
                return 0;
        }
        /* An error is seen again, and acted upon, at the next run. */
        r = outbox_flush(&s->out, s->fd);
        if (r < 0)
                stream_wake(s);
        return r > 0;
}

static void read_stream_run(Stream *s, uint32_t events) {
        ReadStream *x = s->state;

        if ((events & (EPOLLRDHUP|EPOLLHUP|EPOLLERR)) && transport_peer_gone(s->fd)) {
                stream_free(s);
                return;
        }
        for (unsigned i = 0; i < PIECES_PER_TURN; i++)
                if (send_piece(s, x) == 0)
                        return;
        stream_wake(s);
}

static int open_as(const char *path, const char *user_name) {
        _cleanup_user_ User user = {};

        int r = user_find(user_name, &user);
        if (r < 0)
                return r == -ENOENT ? -EKEYREJECTED : r;
        r = identity_enter(&user);
        if (r < 0)
                return r;

        int fd = open(path, O_RDONLY|O_CLOEXEC|O_NONBLOCK|O_NOCTTY);
        r = fd < 0 ? -errno : fd;
        identity_leave();
        return r;
}

static int read_stream_open(ReadStream *x, Stream *s, const Request *q, TlvWriter *ret_record) {
        struct stat st;

        x->fd = open_as(x->path, q->user);
        if (x->fd < 0)
                return x->fd;
        if (fstat(x->fd, &st) < 0)
                return -errno;
        if (S_ISDIR(st.st_mode))
                return -EISDIR;

        int r = file_record_put(ret_record, AT_FDCWD, x->path, file_base_name(x->path), &st);
        if (r < 0)
                return r;

        r = loop_add(&s->agent->loop, &x->source, x->fd, EPOLLIN|EPOLLET, on_file, s);
        return r == -EPERM ? 0 : r; /* always ready */
}

void read_stream_start(Stream *s, Request *q) {
        static const StreamKind kind = { .run = read_stream_run, .done = read_stream_done };
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        _cleanup_(read_stream_freep) ReadStream *x = NULL;

        x = new0(ReadStream, 1);
        if (!x) {
                stream_answer_error(s, -ENOMEM, "%s: out of memory", q->path);
                return;
        }
        x->fd = -EBADF;
        x->path = TAKE_PTR(q->path);

        int r = read_stream_open(x, s, q, &w);
        if (r == -EKEYREJECTED)
                stream_answer_error(s, -ENOENT, "user %s: not in the guest's /etc/passwd", q->user);
        else if (r < 0)
                stream_answer_error(s, r, "%s: %s", x->path, strerror(-r));
        else {
                stream_set_kind(s, &kind, TAKE_PTR(x));
                stream_answer_ok(s, &w);
        }
}
