/* SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <stdio.h>
#include <time.h>

#include "ctl/ctl.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "tests/unit/test.h"

static void check_printable(const char *in, size_t size, bool lines, const char *expected) {
        char *s = text_printable(in, size, lines);
        assert_true(s);
        assert_streq(s, expected);
        free(s);
}

TEST(nothing_commands_a_terminal) {
        check_printable("plain \303\244", 8, false, "plain \303\244");
        check_printable("\033[2J\007", 5, false, "\\x1b[2J\\x07");
        check_printable("a\nb\tc", 5, false, "a\\x0ab\\x09c");
        check_printable("a\nb\tc", 5, true, "a\nb\tc");
        check_printable("\r\177\0x", 4, true, "\\x0d\\x7f\\x00x");
        /* C1 in UTF-8: CSI */
        check_printable("\302\233" "31m", 5, true, "\\xc2\\x9b31m");
        check_printable("\302\240", 2, true, "\302\240");
        /* and in one byte, for terminals that know no UTF-8; as all that is no character */
        check_printable("\233" "31m", 4, true, "\\x9b31m");
        check_printable("\342\202x\377\300\200", 6, false, "\\xe2\\x82x\\xff\\xc0\\x80");
        check_printable("\302", 1, true, "\\xc2");
        /* what turns text around, or ends a line where nobody looks for it */
        check_printable("a\342\200\256b\342\201\246c\342\200\217d\342\200\250", 16, true,
                        "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c\\xe2\\x80\\x8fd\\xe2\\x80\\xa8");
        check_printable("\342\200\246\360\237\230\200", 7, false, "\342\200\246\360\237\230\200");
        check_printable("", 0, true, "");
}

static void check_json(const char *in, const char *expected) {
        char *s = text_json(in);
        assert_true(s);
        assert_streq(s, expected);
        free(s);
}

/* json-c does it for the old control characters; what is left is the same text for who parses it. */
TEST(json_commands_no_terminal) {
        check_json("{\"a\":\"\\u001b[2J \303\244\"}", "{\"a\":\"\\u001b[2J \303\244\"}");
        check_json("{\n  \"a\":\"\302\233" "31m\"\n}", "{\n  \"a\":\"\\u009b31m\"\n}");
        check_json("\"\177\342\200\256\342\201\246\"", "\"\\u007f\\u202e\\u2066\"");
        check_json("\"\342\200\246\360\237\230\200\"", "\"\342\200\246\360\237\230\200\"");
        check_json("", "");
}

TEST(a_piece_ends_with_whole_characters) {
        assert_eq(text_whole("ab\302", 3), 2u);
        assert_eq(text_whole("ab\302\233", 4), 4u);
        assert_eq(text_whole("\360\237\230", 3), 0u);
        assert_eq(text_whole("\360\237\230\200", 4), 4u);
        /* what will never be one is no reason to wait */
        assert_eq(text_whole("ab\233", 3), 3u);
        assert_eq(text_whole("\200\200\200\200", 4), 4u);
        assert_eq(text_whole("ab\377", 3), 3u);
        assert_eq(text_whole("", 0), 0u);
}

TEST(ages) {
        char buf[TEXT_TIME_MAX];
        struct timespec ts;

        clock_gettime(CLOCK_REALTIME, &ts);
        uint64_t now = (uint64_t) ts.tv_sec * USEC_PER_SEC + (uint64_t) ts.tv_nsec / NSEC_PER_USEC;
        assert_streq(text_relative(buf, now - 3600 * USEC_PER_SEC), "1h ago");
        /* and up to nine seconds later */
        assert_true(startswith(text_relative(buf, now + 89 * USEC_PER_SEC), "in 1min 2"));
        assert_streq(text_relative(buf, UINT64_MAX), "-");
        assert_streq(text_relative(buf, 0), "-");
        assert_streq(text_timestamp(buf, 0), "-");
        setenv("TZ", "UTC", 1);
        tzset();
        assert_streq(text_timestamp(buf, 1796000000ULL * USEC_PER_SEC), "Mon 2026-11-30 00:53:20 UTC");
}

TEST(users) {
        char buf[TEXT_USER_MAX];

        assert_streq(text_user(buf, 0), "root");
        assert_streq(text_user(buf, 0x7000abcd), "1879092173");
}

TEST(strv) {
        char **l = NULL;

        assert_eq(text_strv_add(&l, "a"), 0);
        assert_eq(text_strv_add(&l, "b"), 0);
        assert_true(streq(l[0], "a") && streq(l[1], "b") && !l[2]);
        text_strv_free(l);
}

/* What table_print() puts on stdout. */
static char *print(const Table *t, const char *one, const char *many) {
        char *text = NULL;
        size_t size = 0;
        FILE *saved = stdout;

        stdout = open_memstream(&text, &size);
        int r = table_print(t, one, many);
        fclose(stdout);
        stdout = saved;
        assert_eq(r, 0);
        return text;
}

static const char *const headers[] = { "NAME", "SIZE ON DISK", NULL };

TEST(table) {
        Table *t = table_new(headers);
        table_add(t, "a");
        table_add_size(t, 2048);
        table_add(t, "longer\n");
        table_add_size(t, 5);
        table_add(t, NULL);
        table_add_size(t, 0);
        assert_eq(table_rows(t), 3);

        ctl_options.legend = true;
        char *text = print(t, "thing", "things");
        assert_streq(text,
                      "NAME       SIZE ON DISK\n"
                      "a                    2K\n"
                      "longer\\x0a           5B\n"
                      "-                    0B\n"
                      "\n3 things listed.\n");
        free(text);
        ctl_options.legend = false;
        text = print(t, "thing", "things");
        assert_streq(text, "a          2K\nlonger\\x0a 5B\n-          0B\n");
        free(text);

        ctl_options.json = JSON_SHORT;
        text = print(t, "thing", "things");
        assert_streq(text, "[{\"name\":\"a\",\"size_on_disk\":2048},{\"name\":\"longer\\n\",\"size_on_disk\":5},"
                            "{\"name\":null,\"size_on_disk\":0}]\n");
        free(text);
        ctl_options.json = JSON_OFF;
        table_free(t);
}

TEST(empty_table) {
        Table *t = table_new(headers);
        ctl_options.legend = true;
        char *text = print(t, "thing", "things");
        assert_streq(text, "No things.\n");
        free(text);
        ctl_options.json = JSON_SHORT;
        text = print(t, "thing", "things");
        assert_streq(text, "[]\n");
        free(text);
        ctl_options.json = JSON_OFF;
        table_free(t);
}

TEST(wide_characters_count_once) {
        if (!setlocale(LC_ALL, "C.UTF-8"))
                test_skip("no UTF-8 locale");
        assert_eq(text_width("\303\244\303\266"), 2);
        assert_eq(text_width("\346\227\245"), 2);
        assert_eq(text_width("abc"), 3);
}
