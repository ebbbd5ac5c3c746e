/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tlv.h"
#include "guest/request.h"
#include "tests/unit/test.h"

static int parse(Request *ret, uint16_t type, const TlvWriter *w, char *message) {
        FrameHeader h = { .len = (uint32_t) w->size, .type = type };
        return request_parse(ret, &h, w->data, message);
}

TEST(exec) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        _cleanup_request_ Request q = {};
        char message[REQUEST_MESSAGE_MAX];

        tlv_put_str(&w, AGENT_TAG_ARGV, "sh");
        tlv_put_str(&w, AGENT_TAG_ENV, "A=b");
        tlv_put_str(&w, AGENT_TAG_ARGV, "");
        tlv_put_str(&w, AGENT_TAG_CWD, "/tmp");
        tlv_put_u32(&w, AGENT_TAG_PTY, 1);
        tlv_put_u64(&w, AGENT_TAG_TIMEOUT_USEC, 5);
        assert_ok(parse(&q, AGENT_EXEC, &w, message));
        assert_eq(q.argv.n, 2);
        assert_streq(q.argv.items[0], "sh");
        assert_streq(q.argv.items[1], "");
        assert_true(!q.argv.items[2]);
        assert_streq(q.env.items[0], "A=b");
        assert_streq(q.cwd, "/tmp");
        assert_eq(q.pty, 1);
        assert_eq(q.timeout_usec, 5);
        assert_true(request_has(&q, AGENT_TAG_CWD));
        assert_true(!request_has(&q, AGENT_TAG_USER));
}

TEST(envd) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX), bad = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        _cleanup_request_ Request q = {};
        char message[REQUEST_MESSAGE_MAX];

        tlv_put_str(&w, AGENT_TAG_TOKEN, "t");
        tlv_put_str(&w, AGENT_TAG_USER, "user");
        tlv_put_u32(&w, AGENT_TAG_USER_OPTIONAL, 1);
        tlv_put_str(&w, AGENT_TAG_ENV, "A=b");
        assert_ok(parse(&q, AGENT_ENVD, &w, message));
        assert_true(q.user_optional && !q.keep_env);
        assert_streq(q.token, "t");
        assert_streq(q.user, "user");
        assert_true(!request_has(&q, AGENT_TAG_PORT));
        tlv_put_str(&bad, AGENT_TAG_CWD, "relative");
        assert_eq(parse(&q, AGENT_ENVD, &bad, message), -EINVAL);
        assert_true(!q.token);
}

TEST(many_arguments) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        _cleanup_request_ Request q = {};
        char message[REQUEST_MESSAGE_MAX];

        for (unsigned i = 0; i < 10000; i++)
                tlv_put_str(&w, AGENT_TAG_ARGV, "x");
        assert_ok(tlv_writer_finish(&w));
        assert_ok(parse(&q, AGENT_EXEC, &w, message));
        assert_eq(q.argv.n, 10000);
        assert_streq(q.argv.items[9999], "x");
        assert_true(!q.argv.items[10000]);
}

TEST(reuse_forgets_the_last_one) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX), empty = TLV_WRITER_INIT(0);
        _cleanup_request_ Request q = {};
        char message[REQUEST_MESSAGE_MAX];

        tlv_put_str(&w, AGENT_TAG_PATH, "/a");
        assert_ok(parse(&q, AGENT_STAT, &w, message));
        assert_ok(parse(&q, AGENT_PING, &empty, message));
        assert_true(!q.path);
        assert_eq(q.present, 0);
}

TEST(what_is_missing_is_named) {
        TlvWriter empty = TLV_WRITER_INIT(0);
        _cleanup_request_ Request q = {};
        char message[REQUEST_MESSAGE_MAX];

        assert_eq(parse(&q, AGENT_STREAM_TCP, &empty, message), -EINVAL);
        assert_streq(message, "PORT is missing");
        assert_eq(parse(&q, 4242, &empty, message), -EOPNOTSUPP);
        assert_streq(message, "unknown request 4242");
}

TEST(what_does_not_belong_is_refused) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
        _cleanup_request_ Request q = {};
        char message[REQUEST_MESSAGE_MAX];

        tlv_put_str(&w, AGENT_TAG_PATH, "/a");
        tlv_put_str(&w, AGENT_TAG_PATH, "/b");
        assert_eq(parse(&q, AGENT_STAT, &w, message), -EINVAL);
        assert_streq(message, "PATH is there twice");
        assert_eq(parse(&q, AGENT_PING, &w, message), -EINVAL);
        for (uint16_t tag = 0; tag < 100; tag++) {
                _cleanup_tlv_ TlvWriter one = TLV_WRITER_INIT(64);
                tlv_put_u32(&one, tag, 0);
                assert_eq(parse(&q, AGENT_PING, &one, message), -EINVAL);
        }
}

TEST(random_records) {
        unsigned seed = 1;

        for (unsigned round = 0; round < 50000; round++) {
                _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(AGENT_FRAME_MAX);
                _cleanup_request_ Request q = {};
                char message[REQUEST_MESSAGE_MAX];
                uint16_t type = (uint16_t) (AGENT_CLAIM + (unsigned) rand_r(&seed) % 40);

                for (unsigned i = (unsigned) rand_r(&seed) % 4; i > 0; i--) {
                        uint8_t data[300];
                        size_t len = (unsigned[]) { 4, 8, (unsigned) rand_r(&seed) % 300 }[rand_r(&seed) % 3];

                        for (size_t k = 0; k < len; k++)
                                data[k] = k == 0 ? '/' : (uint8_t) rand_r(&seed);
                        tlv_put(&w, (uint16_t) ((unsigned) rand_r(&seed) % (AGENT_TAG_FREEZE_DISK + 2)), data, len);
                }
                if (w.size > 0 && rand_r(&seed) % 4 == 0)
                        w.size -= (unsigned) rand_r(&seed) % 8;
                int r = parse(&q, type, &w, message);
                assert_true(r == 0 || r == -EINVAL || r == -EBADMSG || r == -EOPNOTSUPP);
                assert_true((r == 0) == (*message == 0));
        }
}
