/* SPDX-License-Identifier: Apache-2.0 */

/* Requests that come in pieces, as a client in or out of the guest may write them. What is kept of a head stays within its
 * bounds, and pieces don't change what a request is: it is read a second time byte by byte, and has the same body. */

#include "guest/http-parser.h"
#include "guest/json.h"
#include "fuzz.h"

typedef struct Told {
        unsigned heads;
        size_t n_body;
        uint32_t sum;
} Told;

static void on_head(void *userdata) {
        Told *t = userdata;
        t->heads++;
}

static void on_body(void *userdata, const uint8_t *data, size_t size) {
        Told *t = userdata;

        FUZZ_CHECK(t->heads == 1);
        for (size_t i = 0; i < size; i++)
                t->sum = t->sum * 31 + data[i];
        t->n_body += size;
}

static void look(const HttpRequest *q) {
        _cleanup_free_ char *path = NULL, *user = NULL;
        json_object *o = NULL;

        FUZZ_CHECK(q->size <= HTTP_HEAD_MAX && q->allocated <= HTTP_HEAD_MAX && q->n_fields <= HTTP_FIELDS_MAX);
        if (!q->head)
                return;
        for (unsigned i = 0; i < q->n_fields; i++) {
                FUZZ_CHECK(q->names[i] < q->values[i] && q->values[i] < q->size);
                FUZZ_CHECK(strlen(q->text + q->values[i]) < q->size - q->values[i]);
                FUZZ_CHECK(http_field(q, q->text + q->names[i]));
        }
        (void) http_path_is(q, "/files");
        FUZZ_CHECK(http_query(q, "path", &path) == 0 || !path);
        FUZZ_CHECK(http_query(q, "username", &user) == 0 || !user);
        if (path && json_parse(path, strlen(path), &o) >= 0)
                FUZZ_CHECK(*json_text(o) == '{');
        json_object_put(o);
}

/* How it ended, and how many whole requests there were. */
static int read_all(const uint8_t *data, size_t size, size_t piece, Told *told) {
        HttpParser p;
        ssize_t n = 0;
        int whole = 0;

        http_parser_init(&p, on_head, on_body, told);
        while (size > 0 && n >= 0) {
                n = http_parser_feed(&p, data, MIN(size, piece));
                look(&p.request);
                if (n < 0)
                        break;
                FUZZ_CHECK((size_t) n <= MIN(size, piece) && (n > 0 || p.request.complete));
                data += n;
                size -= (size_t) n;
                if (p.request.complete) {
                        FUZZ_CHECK(told->heads == 1);
                        told->heads = 0;
                        whole++;
                        http_parser_next(&p);
                }
        }
        http_parser_done(&p);
        return n < 0 ? (int) n : whole;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        size_t piece = fuzz_u8(&in) * 8U + 1;
        Told pieces = {}, bytes = {};

        int r = read_all(in.data, in.left, piece, &pieces), s = read_all(in.data, in.left, 1, &bytes);
        /* What is wrong in two ways may be refused for either, by what comes first. */
        FUZZ_CHECK(r == s || (r < 0 && s < 0));
        FUZZ_CHECK(r < 0 || (pieces.n_body == bytes.n_body && pieces.sum == bytes.sum));
        return 0;
}
