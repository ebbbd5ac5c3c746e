/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/epoll.h>

#include "base/fd-util.h"
#include "base/frame.h"
#include "daemon/guest-touch.h"
#include "daemon/manager.h"

#define FILE_TEXT "cube\n"
#define FILE_MODE 0600U
/* A guest may send more than was written. */
#define FRAMES_MAX 16U

typedef enum TouchStep {
        TOUCH_WRITE,
        TOUCH_READ,
        TOUCH_REMOVE,
} TouchStep;

struct GuestTouch {
        Sandbox *sandbox;          /* only while a request is under way: it may be gone before us */
        sd_event *event;
        const char *path;
        GuestTouchDone done;
        void *userdata;
        TouchStep step;
        bool requested, forgotten; /* as in a GuestCommand */
        unsigned n_frames;

        int fd;
        sd_event_source *source;
        FrameParser parser;
};

static int touch_step(GuestTouch *t, sd_bus_error *error);

static void close_stream(GuestTouch *t) {
        t->source = sd_event_source_disable_unref(t->source);
        t->fd = safe_close(t->fd);
        frame_parser_done(&t->parser);
        frame_parser_init(&t->parser, AGENT_DATA_MAX);
}

GuestTouch *guest_touch_free(GuestTouch *t) {
        if (!t)
                return NULL;
        close_stream(t);
        t->forgotten = true;
        if (!t->requested)
                free(t);
        return NULL;
}

static void touch_done(GuestTouch *t, int r) {
        close_stream(t);
        t->done(t, r, t->userdata);
}

static void touch_next(GuestTouch *t) {
        close_stream(t);
        t->step++;
        int r = touch_step(t, NULL);
        if (r < 0)
                touch_done(t, r);
}

/* One frame of ours after the other is on its way: they fit into the socket. */
static int send_file(GuestTouch *t) {
        uint8_t buf[2 * FRAME_HEADER_SIZE + sizeof(FILE_TEXT) - 1];
        uint8_t *end = buf + FRAME_HEADER_SIZE + sizeof(FILE_TEXT) - 1;

        frame_header_put(&(FrameHeader) { .type = AGENT_DATA, .len = sizeof(FILE_TEXT) - 1 }, buf);
        memcpy(buf + FRAME_HEADER_SIZE, FILE_TEXT, sizeof(FILE_TEXT) - 1);
        frame_header_put(&(FrameHeader) { .type = AGENT_END }, end);
        return write_full(t->fd, buf, sizeof(buf));
}

/* 1 with the last frame of the stream, 0 while more has to come. */
static int take_frame(GuestTouch *t) {
        const uint8_t *body;
        FrameHeader h;

        if (frame_parser_peek(&t->parser, &h, &body) <= 0)
                return 0;
        if (h.type == AGENT_END)
                return 1;
        if (h.type != AGENT_DATA || ++t->n_frames > FRAMES_MAX)
                return -EBADMSG;
        frame_parser_next(&t->parser);
        return 0;
}

static int on_stream_data(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        GuestTouch *t = userdata;
        uint8_t buf[4096];
        int r = -ECONNRESET;

        ssize_t n = read(fd, buf, MIN(frame_parser_missing(&t->parser), sizeof(buf)));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n > 0) {
                n = frame_parser_feed(&t->parser, buf, (size_t) n);
                r = n < 0 ? (int) n : take_frame(t);
        }
        if (r < 0)
                touch_done(t, r);
        else if (r > 0)
                touch_next(t);
        return 0;
}

static void on_stream(Sandbox *s, const sd_bus_error *error, int *fd, const uint8_t *body, size_t size, void *userdata) {
        GuestTouch *t = userdata;

        t->requested = false;
        if (t->forgotten) {
                guest_touch_free(t);
                return;
        }
        if (error) {
                touch_next(t);
                return;
        }
        t->fd = TAKE_FD(*fd);
        int r = t->step == TOUCH_WRITE ? send_file(t) : 0;
        if (r >= 0)
                r = fd_set_nonblock(t->fd, true);
        if (r >= 0)
                r = sd_event_add_io(t->event, &t->source, t->fd, EPOLLIN, on_stream_data, t);
        if (r < 0)
                touch_done(t, r);
}

static void on_removed(Sandbox *s, const sd_bus_error *error, const uint8_t *body, size_t size, bool more, void *userdata) {
        GuestTouch *t = userdata;

        if (more)
                return;
        t->requested = false;
        if (t->forgotten)
                guest_touch_free(t);
        else
                touch_done(t, 0);
}

static int touch_step(GuestTouch *t, sd_bus_error *error) {
        static const AgentFrameType types[] = {
                [TOUCH_WRITE] = AGENT_STREAM_WRITE,
                [TOUCH_READ] = AGENT_STREAM_READ,
                [TOUCH_REMOVE] = AGENT_REMOVE,
        };
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);
        int r;

        tlv_put_str(&w, AGENT_TAG_PATH, t->path);
        if (t->step == TOUCH_WRITE) {
                tlv_put_u32(&w, AGENT_TAG_MODE, FILE_MODE);
                tlv_put_u64(&w, AGENT_TAG_SIZE, sizeof(FILE_TEXT) - 1);
        }
        if (t->step == TOUCH_REMOVE)
                r = sandbox_agent_request(t->sandbox, types[t->step], &w, on_removed, t, error);
        else
                r = sandbox_open_stream(t->sandbox, types[t->step], &w, on_stream, t, error);
        t->requested = r >= 0;
        return r;
}

int guest_touch_start(Sandbox *s, const char *path, GuestTouchDone done, void *userdata, GuestTouch **ret,
                      sd_bus_error *error) {
        GuestTouch *t = new0(GuestTouch, 1);
        if (!t)
                return sd_bus_error_set_errno(error, ENOMEM);

        *t = (GuestTouch) {
                .sandbox = s,
                .event = s->manager->event,
                .path = path,
                .done = done,
                .userdata = userdata,
                .fd = -EBADF,
        };
        frame_parser_init(&t->parser, AGENT_DATA_MAX);
        int r = touch_step(t, error);
        if (r < 0) {
                guest_touch_free(t);
                return r;
        }
        *ret = t;
        return 0;
}
