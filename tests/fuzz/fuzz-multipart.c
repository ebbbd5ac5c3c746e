/* SPDX-License-Identifier: Apache-2.0 */

/* A form that comes in pieces. Parts begin and end in turn, and pieces don't change what is in them: it is read a second time
 * byte by byte. */

#include "guest/multipart.h"
#include "fuzz.h"

typedef struct Told {
        bool open;
        unsigned parts;
        size_t n;
        uint32_t sum;
} Told;

static void add(Told *t, const uint8_t *data, size_t size) {
        for (size_t i = 0; i < size; i++)
                t->sum = t->sum * 31 + data[i];
        t->n += size;
}

static int on_begin(void *userdata, const char *name, const char *filename) {
        Told *t = userdata;

        FUZZ_CHECK(!t->open);
        t->open = true;
        t->parts++;
        add(t, (const uint8_t *) name, strlen(name));
        if (filename)
                add(t, (const uint8_t *) filename, strlen(filename));
        return 0;
}

static int on_data(void *userdata, const uint8_t *data, size_t size) {
        Told *t = userdata;

        FUZZ_CHECK(t->open && size > 0);
        add(t, data, size);
        return 0;
}

static int on_end(void *userdata) {
        Told *t = userdata;

        FUZZ_CHECK(t->open);
        t->open = false;
        return 0;
}

static int read_all(FuzzInput in, size_t piece, Told *told, bool *ret_complete) {
        static const MultipartEvents events = { on_begin, on_data, on_end };
        Multipart m;
        int r = 0;

        FUZZ_CHECK(multipart_init(&m, "multipart/form-data; boundary=b", &events, told) == 0);
        while (r >= 0 && in.left > 0) {
                size_t n = MIN(in.left, piece);
                r = multipart_feed(&m, in.data, n);
                FUZZ_CHECK(r == 0 || r == -EBADMSG);
                in.data += n;
                in.left -= n;
        }
        *ret_complete = multipart_complete(&m);
        FUZZ_CHECK(!*ret_complete || !told->open);
        multipart_done(&m);
        return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        size_t piece = fuzz_u8(&in) + 1U;
        Told pieces = {}, bytes = {};
        bool whole_pieces, whole_bytes;

        int r = read_all(in, piece, &pieces, &whole_pieces), s = read_all(in, 1, &bytes, &whole_bytes);
        FUZZ_CHECK(r == s && whole_pieces == whole_bytes && pieces.parts == bytes.parts);
        FUZZ_CHECK(pieces.n == bytes.n && pieces.sum == bytes.sum);
        return 0;
}
