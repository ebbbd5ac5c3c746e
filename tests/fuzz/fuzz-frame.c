/* SPDX-License-Identifier: Apache-2.0 */

/* Frames on a stream that comes in pieces, and the records in each. What is fed whole comes out as it went in, and
 * records that were read can be written again. */

#include "base/frame.h"
#include "base/tlv.h"
#include "fuzz.h"

#define BODY_MAX 4096U

static void walk_records(const uint8_t *body, size_t size) {
        TlvReader reader = TLV_READER_INIT(body, size);
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(size + 8);
        uint64_t u64;
        uint32_t u32;
        Tlv t;
        int r;

        while ((r = tlv_next(&reader, &t)) > 0) {
                _cleanup_free_ char *text = NULL;

                FUZZ_CHECK(t.data >= body && t.data + t.len <= body + size);
                FUZZ_CHECK((tlv_get_u32(&t, &u32) == 0) == (t.len == sizeof(u32)));
                FUZZ_CHECK((tlv_get_u64(&t, &u64) == 0) == (t.len == sizeof(u64)));
                if (tlv_get_str(&t, &text) >= 0)
                        FUZZ_CHECK(strlen(text) == t.len);
                tlv_put(&w, t.tag, t.data, t.len);
        }
        FUZZ_CHECK(r == 0 || r == -EBADMSG);
        if (r == 0)
                FUZZ_CHECK(tlv_writer_finish(&w) == 0 && w.size >= size && w.size < size + 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        size_t piece = fuzz_u8(&in) + 1U;
        FrameParser p;

        frame_parser_init(&p, BODY_MAX);
        while (in.left > 0) {
                const uint8_t *body;
                FrameHeader h;

                size_t n = MIN(MIN(in.left, piece), frame_parser_missing(&p));
                ssize_t took = frame_parser_feed(&p, in.data, n);
                if (took < 0)
                        break;
                FUZZ_CHECK((size_t) took <= n && took > 0);
                in.data += took;
                in.left -= (size_t) took;
                if (frame_parser_peek(&p, &h, &body) <= 0)
                        continue;
                FUZZ_CHECK(h.len <= BODY_MAX);
                walk_records(body, h.len);
                frame_parser_next(&p);
        }
        frame_parser_done(&p);
        return 0;
}
