/* SPDX-License-Identifier: Apache-2.0 */
#include "base/agent-file.h"
#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "base/frame.h"
#include "base/tlv.h"

/* The body of an AGENT_END: 0, or the guest's errno and its message. */
static int parse_end(const uint8_t *body, size_t size, char **ret_message) {
        TlvReader reader = TLV_READER_INIT(body, size);
        _cleanup_free_ char *message = NULL;
        uint32_t e = 0;
        Tlv t;
        int r;

        while ((r = tlv_next(&reader, &t)) > 0) {
                if (t.tag == AGENT_TAG_ERRNO)
                        r = tlv_get_u32(&t, &e);
                else if (t.tag == AGENT_TAG_MESSAGE && !message)
                        r = tlv_get_str(&t, &message);
                else
                        r = -EBADMSG;
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        if (e > 4095)
                return -EBADMSG;
        if (e != 0 && message)
                *ret_message = TAKE_PTR(message);
        return -(int) e;
}

static int read_frame(int stream, FrameParser *p, FrameHeader *ret_header, const uint8_t **ret_body) {
        uint8_t buf[AGENT_DATA_MAX];
        size_t missing;

        while ((missing = frame_parser_missing(p)) > 0) {
                size_t n = MIN(missing, sizeof(buf));
                int r = read_full(stream, buf, n);
                if (r < 0)
                        return r == -EPIPE ? -ECONNRESET : r;
                ssize_t k = frame_parser_feed(p, buf, n);
                if (k < 0)
                        return (int) k;
        }
        return frame_parser_peek(p, ret_header, ret_body) > 0 ? 0 : -EBADMSG;
}

static int receive_end(int stream, char **ret_message) {
        _cleanup_(frame_parser_done) FrameParser p;
        const uint8_t *body;
        FrameHeader h;

        frame_parser_init(&p, AGENT_DATA_MAX);
        int r = read_frame(stream, &p, &h, &body);
        if (r < 0)
                return r;
        return h.type == AGENT_END ? parse_end(body, h.len, ret_message) : -EBADMSG;
}

static int send_frame(int stream, AgentFrameType type, uint8_t *buf, size_t size) {
        frame_header_put(&(FrameHeader) { .type = (uint16_t) type, .len = (uint32_t) size }, buf);
        return write_full(stream, buf, FRAME_HEADER_SIZE + size);
}

static int send_contents(int stream, int fd, uint64_t size) {
        uint8_t buf[FRAME_HEADER_SIZE + AGENT_DATA_MAX];
        uint64_t left = size;

        while (left > 0) {
                ssize_t n = read(fd, buf + FRAME_HEADER_SIZE, MIN(left, (uint64_t) AGENT_DATA_MAX));
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (n == 0)
                        break;
                int r = send_frame(stream, AGENT_DATA, buf, (size_t) n);
                if (r < 0)
                        return r;
                left -= size == UINT64_MAX ? 0 : (uint64_t) n;
        }

        /* Shorter than announced: it shrank under our hands. */
        if (size != UINT64_MAX && left > 0)
                return -ENODATA;
        return send_frame(stream, AGENT_END, buf, 0);
}

int agent_file_send(int stream, int fd, uint64_t size, char **ret_message) {
        int r = send_contents(stream, fd, size);

        /* A guest that has no more room says so before it has read all. */
        if (r < 0 && r != -EPIPE && r != -ECONNRESET)
                return r;
        int end = receive_end(stream, ret_message);
        return end < 0 ? end : r;
}

int agent_file_receive(int stream, int fd, uint64_t max, char **ret_message) {
        _cleanup_(frame_parser_done) FrameParser p;
        const uint8_t *body;
        uint64_t size = 0;
        FrameHeader h;

        frame_parser_init(&p, AGENT_DATA_MAX);
        for (;;) {
                int r = read_frame(stream, &p, &h, &body);
                if (r < 0)
                        return r;
                if (h.type == AGENT_END)
                        return parse_end(body, h.len, ret_message);
                if (h.type != AGENT_DATA)
                        return -EBADMSG;
                if (h.len > max - size)
                        return -EFBIG;
                size += h.len;

                r = write_full(fd, body, h.len);
                if (r < 0)
                        return r;
                frame_parser_next(&p);
        }
}
