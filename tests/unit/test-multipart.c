/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "guest/multipart.h"
#include "tests/unit/test.h"

#define TYPE "multipart/form-data; boundary=b"

/* All that was told, as text. */
typedef struct Told {
        char text[512];
        size_t n;
        int refuse;
} Told;

static int on_begin(void *userdata, const char *name, const char *filename) {
        Told *t = userdata;

        t->n += (size_t) snprintf(t->text + t->n, sizeof(t->text) - t->n, "<%s %s:", name, filename ? filename : "(none)");
        return t->refuse;
}

static int on_data(void *userdata, const uint8_t *data, size_t size) {
        Told *t = userdata;

        t->n += (size_t) snprintf(t->text + t->n, sizeof(t->text) - t->n, "%.*s", (int) size, (const char *) data);
        return 0;
}

static int on_end(void *userdata) {
        Told *t = userdata;

        t->n += (size_t) snprintf(t->text + t->n, sizeof(t->text) - t->n, ">");
        return 0;
}

static const MultipartEvents events = { on_begin, on_data, on_end };

static int feed(const char *type, const char *body, size_t piece, Told *t, bool *ret_complete) {
        Multipart m;

        int r = multipart_init(&m, type, &events, t);
        if (r < 0)
                return r;
        for (size_t left = strlen(body); r >= 0 && left > 0; left -= MIN(left, piece), body += MIN(strlen(body), piece))
                r = multipart_feed(&m, (const uint8_t *) body, MIN(left, piece));
        *ret_complete = multipart_complete(&m);
        multipart_done(&m);
        return r;
}

#define HEAD(parameters) "Content-Disposition: form-data; " parameters "\r\n\r\n"

static const struct {
        const char *type, *body, *told;
} good[] = {
        { TYPE, "--b\r\n" HEAD("name=\"file\"; filename=\"a\"") "x\r\n--b--\r\n", "<file a:x>" },
        { "Multipart/Form-Data; charset=x; BOUNDARY=\"a b\"", "--a b  \r\n" HEAD("name=f") "\r\n--a b--", "<f (none):>" },
        { TYPE, "preamble --b\r\n\r\n--b\r\nContent-Type: t\r\ncontent-disposition: form-data; name=f; filename=a/b c \r\n\r\n"
                "--b\r\n-\r\n--\r\n--c\r\r\n--b\r\n" HEAD("filename=\"d/f \xc3\xbc;=\\\"\\\\\\.txt\"; name=file") "\r\n\r\n\r\n--b--epilogue",
                "<f a/b c:--b\r\n-\r\n--\r\n--c\r><file d/f \xc3\xbc;=\"\\\\.txt:\r\n\r\n>" },
        { TYPE, "--b--", "" },
};

TEST(parts_in_any_pieces) {
        for (size_t i = 0; i < ELEMENTSOF(good); i++)
                for (size_t piece = 1; piece <= strlen(good[i].body); piece++) {
                        bool complete = false;
                        Told t = {};

                        assert_ok(feed(good[i].type, good[i].body, piece, &t, &complete));
                        assert_streq(t.text, good[i].told);
                        assert_true(complete);
                }
}

TEST(what_is_cut_off_is_not_complete) {
        const char *body = "--b\r\n" HEAD("name=\"file\"; filename=\"a\"") "x\r\n--b--";

        for (size_t n = 0; n < strlen(body); n++) {
                _cleanup_free_ char *cut = strndup(body, n);
                bool complete = true;
                Told t = {};

                assert_ok(feed(TYPE, cut, 3, &t, &complete));
                assert_true(!complete);
        }
}

TEST(what_is_no_multipart) {
        static const char *const bad[] = {
                "--bx",
                "--b\n",
                "--b-\r\n",
                "--b\r\r\n",
                "--b\r\n\r\n",
                "--b\r\nContent-Type: x\r\n\r\n",
                "--b\r\n" HEAD("name=\"file"),
        };

        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                bool complete;
                Told t = {};

                if (feed(TYPE, bad[i], 4, &t, &complete) != -EBADMSG)
                        test_stop(TEST_FAILED, __LINE__, "%s", bad[i]);
        }
}

TEST(a_head_has_its_bound) {
        _cleanup_free_ char *body = new0(char, MULTIPART_HEAD_MAX + 64);
        bool complete;
        Told t = {};

        memset(body, 'x', MULTIPART_HEAD_MAX + 32);
        memcpy(body, "--b\r\n", 5);
        assert_eq(feed(TYPE, body, 1000, &t, &complete), -EBADMSG);
}

TEST(no_boundary_or_too_long_a_one) {
        static const char *const bad[] = {
                "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"x",
        };
        char longest[MULTIPART_BOUNDARY_MAX + 64] = "multipart/form-data; boundary=";
        size_t n = strlen(longest);
        Multipart m;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                assert_eq(multipart_init(&m, bad[i], &events, NULL), -EINVAL);
        memset(longest + n, 'b', MULTIPART_BOUNDARY_MAX);
        assert_ok(multipart_init(&m, longest, &events, NULL));
        longest[n + MULTIPART_BOUNDARY_MAX] = 'b';
        assert_eq(multipart_init(&m, longest, &events, NULL), -EINVAL);
}

TEST(an_event_ends_it) {
        bool complete;
        Told t = { .refuse = -ECANCELED };

        assert_eq(feed(TYPE, good[0].body, 100, &t, &complete), -ECANCELED);
        assert_streq(t.text, "<file a:");
}
