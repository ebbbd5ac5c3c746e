/* SPDX-License-Identifier: Apache-2.0 */
#include "base/frame.h"
#include "tests/unit/test.h"

#define BODY_MAX 1000U

static size_t put_frame(uint8_t *at, uint16_t type, uint32_t id, const void *body, uint32_t len) {
        frame_header_put(&(FrameHeader) { .len = len, .type = type, .flags = 1, .id = id }, at);
        if (len > 0)
                memcpy(at + FRAME_HEADER_SIZE, body, len);
        return FRAME_HEADER_SIZE + len;
}

TEST(header_round_trip) {
        static const uint8_t expected[] = { 4, 3, 2, 1, 6, 5, 8, 7, 12, 11, 10, 9 };
        uint8_t bytes[FRAME_HEADER_SIZE];
        FrameHeader h;

        frame_header_put(&(FrameHeader) { 0x01020304, 0x0506, 0x0708, 0x090a0b0c }, bytes);
        assert_true(memcmp(bytes, expected, sizeof(expected)) == 0);
        frame_header_get(bytes, &h);
        assert_eq(h.len, 0x01020304);
        assert_eq(h.type, 0x0506);
        assert_eq(h.flags, 0x0708);
        assert_eq(h.id, 0x090a0b0c);
}

/* Feeds the stream in pieces of the given size and takes out what becomes complete. */
static unsigned feed_in_pieces(FrameParser *p, const uint8_t *data, size_t size, size_t piece) {
        unsigned frames = 0;
        const uint8_t *body;
        FrameHeader h;

        for (size_t at = 0; at < size;) {
                ssize_t n = frame_parser_feed(p, data + at, MIN(piece, size - at));
                assert_true(n > 0 && (size_t) n <= MIN(piece, size - at));
                at += (size_t) n;

                if (frame_parser_peek(p, &h, &body)) {
                        assert_eq(frame_parser_missing(p), 0);
                        assert_eq(frame_parser_feed(p, data, size), 0);
                        assert_eq(h.id, frames);
                        for (uint32_t i = 0; i < h.len; i++)
                                assert_eq(body[i], (uint8_t) (frames + i));
                        frames++;
                        frame_parser_next(p);
                }
        }
        return frames;
}

TEST(pieces_of_any_size) {
        static const uint32_t lengths[] = { 0, 1, 7, 8, 0, 999, 1000, 3, 0 };
        uint8_t data[4096], body[BODY_MAX];
        size_t size = 0;

        for (uint32_t i = 0; i < ELEMENTSOF(lengths); i++) {
                for (uint32_t k = 0; k < lengths[i]; k++)
                        body[k] = (uint8_t) (i + k);
                size += put_frame(data + size, 1, i, body, lengths[i]);
        }

        for (size_t piece = 1; piece < 1100; piece += piece < 40 ? 1 : 97) {
                FrameParser p;
                frame_parser_init(&p, BODY_MAX);
                assert_eq(feed_in_pieces(&p, data, size, piece), ELEMENTSOF(lengths));
                frame_parser_done(&p);
        }
}

TEST(missing_leads_to_the_frame) {
        uint8_t data[FRAME_HEADER_SIZE + 10] = {};
        const uint8_t *body;
        FrameParser p;
        FrameHeader h;

        frame_parser_init(&p, BODY_MAX);
        put_frame(data, 2, 3, "0123456789", 10);
        assert_eq(frame_parser_missing(&p), FRAME_HEADER_SIZE);
        assert_eq(frame_parser_peek(&p, &h, &body), 0);
        assert_eq(frame_parser_feed(&p, data, sizeof(data)), FRAME_HEADER_SIZE);
        assert_eq(frame_parser_missing(&p), 10);
        assert_eq(frame_parser_peek(&p, &h, &body), 0);
        assert_eq(frame_parser_feed(&p, data + FRAME_HEADER_SIZE, 10), 10);
        assert_eq(frame_parser_peek(&p, &h, &body), 1);
        assert_true(memcmp(body, "0123456789", 10) == 0);
        frame_parser_next(&p);
        assert_eq(frame_parser_missing(&p), FRAME_HEADER_SIZE);
        frame_parser_done(&p);
}

TEST(body_over_the_ceiling) {
        uint8_t data[FRAME_HEADER_SIZE];
        const uint8_t *body;
        FrameParser p;
        FrameHeader h;

        frame_parser_init(&p, BODY_MAX);
        frame_header_put(&(FrameHeader) { .len = BODY_MAX + 1 }, data);
        assert_eq(frame_parser_feed(&p, data, sizeof(data)), -EMSGSIZE);
        assert_eq(frame_parser_peek(&p, &h, &body), 0);
        frame_header_put(&(FrameHeader) { .len = UINT32_MAX }, data);
        assert_eq(frame_parser_feed(&p, data, 5), 5);
        assert_eq(frame_parser_feed(&p, data + 5, 7), -EMSGSIZE);
        frame_parser_done(&p);
}

TEST(memory_follows_what_arrived) {
        uint8_t data[FRAME_HEADER_SIZE + 4] = {};
        FrameParser p;

        frame_parser_init(&p, 1U << 30);
        frame_header_put(&(FrameHeader) { .len = 1U << 30 }, data);
        assert_eq(frame_parser_feed(&p, data, FRAME_HEADER_SIZE), FRAME_HEADER_SIZE);
        assert_eq(frame_parser_feed(&p, data + FRAME_HEADER_SIZE, 4), 4);
        assert_true(p.allocated < 4096);
        frame_parser_done(&p);
}

TEST(large_buffers_are_given_back) {
        _cleanup_free_ uint8_t *data = new0(uint8_t, FRAME_HEADER_SIZE + 100000);
        FrameParser p;

        frame_parser_init(&p, 200000);
        frame_header_put(&(FrameHeader) { .len = 100000 }, data);
        assert_eq(frame_parser_feed(&p, data, FRAME_HEADER_SIZE), FRAME_HEADER_SIZE);
        assert_eq(frame_parser_feed(&p, data + FRAME_HEADER_SIZE, 100000), 100000);
        frame_parser_next(&p);
        assert_eq(p.allocated, 0);
        frame_parser_done(&p);
}

TEST(random_streams) {
        unsigned seed = 1;

        for (unsigned round = 0; round < 2000; round++) {
                const uint8_t *body;
                FrameParser p;
                FrameHeader h;

                frame_parser_init(&p, BODY_MAX);
                for (unsigned i = 0; i < 50; i++) {
                        uint8_t data[64];
                        size_t size = (unsigned) rand_r(&seed) % sizeof(data);

                        for (size_t k = 0; k < size; k++)
                                data[k] = rand_r(&seed) % 3 ? 0 : (uint8_t) rand_r(&seed);
                        ssize_t n = frame_parser_feed(&p, data, size);
                        if (n == -EMSGSIZE)
                                break;
                        assert_true(n >= 0 && (size_t) n <= size);
                        if (frame_parser_peek(&p, &h, &body)) {
                                assert_true(h.len <= BODY_MAX);
                                frame_parser_next(&p);
                        }
                }
                frame_parser_done(&p);
        }
}
