/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tlv.h"
#include "tests/unit/test.h"

TEST(round_trip) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);
        _cleanup_free_ char *s = NULL;
        struct { uint8_t bytes[5]; } fixed;
        uint32_t u32;
        uint64_t u64;
        Tlv t;

        tlv_put_u32(&w, 1, 0x12345678);
        tlv_put_u64(&w, 2, UINT64_C(0x123456789abcdef0));
        tlv_put_str(&w, 3, "hello");
        tlv_put(&w, 4, "\1\2\3\4\5", 5);
        tlv_put(&w, 65535, NULL, 0);
        assert_ok(tlv_writer_finish(&w));
        assert_eq(w.size, 16 + 16 + 16 + 16 + 8);

        TlvReader r = TLV_READER_INIT(w.data, w.size);
        assert_eq(tlv_next(&r, &t), 1);
        assert_eq(t.tag, 1);
        assert_ok(tlv_get_u32(&t, &u32));
        assert_eq(u32, 0x12345678);
        assert_eq(tlv_get_u64(&t, &u64), -EBADMSG);

        assert_eq(tlv_next(&r, &t), 1);
        assert_ok(tlv_get_u64(&t, &u64));
        assert_eq(u64, UINT64_C(0x123456789abcdef0));
        assert_eq(tlv_get_u32(&t, &u32), -EBADMSG);

        assert_eq(tlv_next(&r, &t), 1);
        assert_ok(tlv_get_str(&t, &s));
        assert_streq(s, "hello");

        assert_eq(tlv_next(&r, &t), 1);
        assert_eq(t.len, 5);
        assert_ok(tlv_get_struct(&t, &fixed, sizeof(fixed)));
        assert_eq(fixed.bytes[4], 5);

        assert_eq(tlv_next(&r, &t), 1);
        assert_eq(t.tag, 65535);
        assert_eq(t.len, 0);
        assert_eq(tlv_next(&r, &t), 0);
        assert_eq(tlv_next(&r, &t), 0);
}

TEST(wire_format_is_little_endian_and_padded) {
        static const uint8_t expected[] = { 2, 1, 0, 0, 3, 0, 0, 0, 'a', 'b', 'c', 0, 0, 0, 0, 0 };
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(64);

        tlv_put_str(&w, 0x0102, "abc");
        assert_eq(w.size, sizeof(expected));
        assert_true(memcmp(w.data, expected, sizeof(expected)) == 0);
}

TEST(empty_string) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(64);
        _cleanup_free_ char *s = NULL;
        Tlv t;

        tlv_put_str(&w, 1, "");
        TlvReader r = TLV_READER_INIT(w.data, w.size);
        assert_eq(tlv_next(&r, &t), 1);
        assert_ok(tlv_get_str(&t, &s));
        assert_streq(s, "");
}

TEST(string_with_nul_is_refused) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(64);
        char *s = NULL;
        Tlv t;

        tlv_put(&w, 1, "a\0b", 3);
        TlvReader r = TLV_READER_INIT(w.data, w.size);
        assert_eq(tlv_next(&r, &t), 1);
        assert_eq(tlv_get_str(&t, &s), -EBADMSG);
        assert_true(!s);
}

TEST(ceiling_sticks) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(32);

        tlv_put_u64(&w, 1, 1);
        tlv_put_u64(&w, 2, 2);
        assert_ok(tlv_writer_finish(&w));
        assert_eq(w.size, 32);
        tlv_put_u32(&w, 3, 3);
        assert_eq(tlv_writer_finish(&w), -EMSGSIZE);
        assert_eq(w.size, 32);
        tlv_put(&w, 4, NULL, 0);
        assert_eq(tlv_writer_finish(&w), -EMSGSIZE);
}

TEST(larger_than_any_record) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(SIZE_MAX);

        /* Never touches the data: the length alone is out of range. */
        tlv_put(&w, 1, "", (size_t) UINT32_MAX);
        assert_eq(tlv_writer_finish(&w), -EMSGSIZE);
}

TEST(many_records_grow_the_buffer) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(1 << 20);
        uint32_t u, n = 0;
        Tlv t;

        for (uint32_t i = 0; i < 10000; i++)
                tlv_put_u32(&w, 7, i);
        assert_ok(tlv_writer_finish(&w));

        TlvReader r = TLV_READER_INIT(w.data, w.size);
        while (tlv_next(&r, &t) > 0) {
                assert_ok(tlv_get_u32(&t, &u));
                assert_eq(u, n++);
        }
        assert_eq(n, 10000);
}

static int first(const void *data, size_t size) {
        TlvReader r = TLV_READER_INIT(data, size);
        Tlv t;
        return tlv_next(&r, &t);
}

TEST(malformed) {
        static const uint8_t header[8] = { 1 };

        assert_eq(first(header, 0), 0);
        for (size_t n = 1; n < 8; n++)
                assert_eq(first(header, n), -EBADMSG);
        assert_eq(first(header, 8), 1);

        /* reserved bytes */
        assert_eq(first((uint8_t[8]) { 1, 0, 1 }, 8), -EBADMSG);
        /* longer than the buffer, with and without padding, and so long that padding wraps */
        assert_eq(first((uint8_t[8]) { 1, 0, 0, 0, 1 }, 8), -EBADMSG);
        assert_eq(first((uint8_t[16]) { 1, 0, 0, 0, 9 }, 16), -EBADMSG);
        assert_eq(first((uint8_t[12]) { 1, 0, 0, 0, 4 }, 12), -EBADMSG);
        assert_eq(first((uint8_t[16]) { 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff }, 16), -EBADMSG);
        assert_eq(first((uint8_t[16]) { 1, 0, 0, 0, 0xf9, 0xff, 0xff, 0xff }, 16), -EBADMSG);
}

TEST(random_buffers_end) {
        unsigned seed = 1;

        for (unsigned round = 0; round < 20000; round++) {
                /* Of its exact size on the heap, so that a sanitizer sees every byte too far. */
                size_t size = (unsigned) rand_r(&seed) % 100, n = 0;
                _cleanup_free_ uint8_t *data = malloc(size ? size : 1);
                Tlv t;
                int k;

                for (size_t i = 0; i < size; i++)
                        data[i] = rand_r(&seed) % 4 ? 0 : (uint8_t) rand_r(&seed);
                TlvReader r = TLV_READER_INIT(data, size);
                while ((k = tlv_next(&r, &t)) > 0) {
                        _cleanup_free_ char *s = NULL;
                        uint64_t u;

                        (void) tlv_get_u64(&t, &u);
                        (void) tlv_get_str(&t, &s);
                        assert_true(++n <= size / 8);
                }
                assert_true(k == 0 || k == -EBADMSG);
        }
}
