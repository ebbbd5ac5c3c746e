/* SPDX-License-Identifier: Apache-2.0 */

/* Entries of a sandbox's log, of which most is a guest's text. */

#include "gateway/bus-json.h"
#include "gateway/log-entries.h"
#include "tests/unit/test.h"

#define NOW (UINT64_C(5000) * USEC_PER_SEC)

typedef struct File {
        ConsoleRing ring;
        ConsoleMarks marks;
} File;

_Static_assert(sizeof(File) == CONSOLE_BYTES, "as the memfd is");

static File file;

static void print(const char *text, size_t size, uint64_t usec) {
        file.marks.marks[file.marks.n++ % CONSOLE_MARKS] = (ConsoleMark) { file.ring.head, usec };
        for (size_t i = 0; i < size; i++)
                file.ring.data[file.ring.head++ % CONSOLE_RING_BYTES] = (uint8_t) text[i];
}

static LogEntries take(size_t size) {
        LogEntries l = {};

        assert_ok(log_entries_add_console(&l, &file, size, NOW));
        return l;
}

static void begin(void) {
        memset(&file, 0, sizeof(file));
}

TEST(lines_have_the_time_at_which_they_began) {
        begin();
        print("one\r\ntwo\n", 9, 100);
        print("thr", 3, 200);
        print("ee\n\n\nfour\n", 10, 300);
        LogEntries l = take(sizeof(file));
        assert_eq(l.n, 4u);
        assert_streq(l.items[0].message, "one");
        assert_eq(l.items[1].usec, 100u);
        assert_streq(l.items[2].message, "three");
        assert_eq(l.items[2].usec, 200u);
        assert_streq(l.items[3].message, "four");
        assert_eq(l.items[3].usec, 300u);
        assert_streq(l.items[3].source, "console");
        log_entries_done(&l);
}

TEST(a_line_that_has_not_ended_waits_a_second) {
        begin();
        print("login: ", 7, NOW - 10);
        LogEntries l = take(sizeof(file));
        assert_eq(l.n, 0u);
        log_entries_done(&l);
        file.marks.marks[0].usec = NOW - USEC_PER_SEC;
        l = take(sizeof(file));
        assert_eq(l.n, 1u);
        log_entries_done(&l);
}

TEST(of_a_full_ring_the_first_line_is_left_out) {
        begin();
        for (unsigned i = 0; i < CONSOLE_RING_BYTES / 8 + 1; i++)
                print("1234567\n", 8, i);
        print("x", 1, 9);
        LogEntries l = take(sizeof(file));
        for (size_t i = 0; i < l.n - 1; i++)
                assert_streq(l.items[i].message, "1234567");
        assert_eq(l.n, CONSOLE_RING_BYTES / 8);
        log_entries_done(&l);
}

TEST(a_guests_text_is_made_printable_and_valid) {
        static const char text[] = "\033[31mred\033[0m\ta\0b\xff\xc3\xa9\xc2\x9b\xed\xa0\x80\n";

        begin();
        print(text, sizeof(text) - 1, 1);
        LogEntries l = take(sizeof(file));
        assert_streq(l.items[0].message, "?[31mred?[0m a?b?\xc3\xa9????");
        log_entries_done(&l);
}

TEST(a_line_has_an_end) {
        begin();
        for (unsigned i = 0; i < 60000; i++)
                print("a", 1, 1);
        print("\n", 1, 1);
        LogEntries l = take(sizeof(file));
        assert_eq(strlen(l.items[0].message), LOG_LINE_MAX);
        log_entries_done(&l);
}

TEST(what_a_vmm_wrote_is_not_believed) {
        begin();
        memset(&file, 0xff, sizeof(file));
        LogEntries l = take(sizeof(file));
        log_entries_done(&l);
        file.ring.head = 5;
        memcpy(file.ring.data, "abcd\n", 5);
        l = take(sizeof(file));
        assert_eq(l.n, 1u);
        /* Nothing comes from the future. */
        assert_eq(l.items[0].usec, NOW);
        log_entries_done(&l);
        /* Without marks, and without all of a ring. */
        l = take(sizeof(ConsoleRing));
        assert_eq(l.n, 1u);
        log_entries_done(&l);
        l = take(sizeof(ConsoleRing) - 1);
        assert_eq(l.n, 0u);
}

static int query(const char *target, bool v2, LogQuery *q) {
        static Url u;
        ErrorText e = {};

        url_done(&u);
        assert_ok(url_parse(target, &u));
        int r = log_query_parse(&u, v2, q, &e);
        assert_true(r >= 0 || *e.text);
        return r;
}

/* The messages that are there, each one letter. */
static const char *selected(LogEntries *l, const char *target) {
        static char text[64];
        size_t n = 0;
        LogQuery q;

        assert_ok(query(target, true, &q));
        json_object *o = log_entries_to_json(l, &q, true), *logs = info_get(o, "logs");
        for (; n < json_object_array_length(logs); n++)
                text[n] = *info_string(json_object_array_get_idx(logs, n), "message");
        text[n] = 0;
        json_object_put(o);
        return text;
}

TEST(what_is_asked_for) {
        LogEntries l = {};

        assert_ok(log_entries_add(&l, 3000, LOG_LEVEL_INFO, "console", "c x", 3));
        assert_ok(log_entries_add(&l, 1000, LOG_LEVEL_INFO, "cubed", "a", 1));
        assert_ok(log_entries_add(&l, 2999, LOG_LEVEL_ERROR, "cubed", "b x", 3));
        assert_ok(log_entries_add(&l, 3000, LOG_LEVEL_DEBUG, "console", "d", 1));
        assert_streq(selected(&l, "/"), "abcd");
        assert_streq(selected(&l, "/?direction=backward"), "dcba");
        assert_streq(selected(&l, "/?cursor=2"), "bcd");
        assert_streq(selected(&l, "/?cursor=2&direction=backward"), "ba");
        assert_streq(selected(&l, "/?limit=2"), "ab");
        assert_streq(selected(&l, "/?limit=1&direction=backward"), "d");
        assert_streq(selected(&l, "/?limit=0"), "");
        assert_streq(selected(&l, "/?level=info"), "abc");
        assert_streq(selected(&l, "/?level=warn"), "b");
        assert_streq(selected(&l, "/?search=x"), "bc");
        assert_streq(selected(&l, "/?search=X"), "");
        log_entries_done(&l);
}

TEST(wrong_questions) {
        static const char *const wrong[] = { "/?cursor=x", "/?cursor=-1", "/?limit=1001", "/?limit=x", "/?direction=up", "/?level=all" };
        LogQuery q;

        for (size_t i = 0; i < ELEMENTSOF(wrong); i++)
                assert_eq(query(wrong[i], true, &q), -EINVAL);
        assert_ok(query("/?limit=100000&level=all&start=5", false, &q));
        assert_eq(q.limit, LOG_LIMIT);
        assert_eq(q.cursor_msec, 5u);
}
