/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ctl/cell-event.h"
#include "ctl/cell-output.h"
#include "ctl/ctl.h"
#include "tests/unit/temp-dir.h"
#include "tests/unit/test.h"

/* Eight bytes that a PNG begins with, and some more. */
#define PNG_BASE64 "iVBORw0KGgoAAAAN"

static int parse(const char *line, CellEvent *e) {
        *e = (CellEvent) {};
        return cell_event_parse(line, strlen(line), e);
}

static void check_type(const char *line, CellEventType type) {
        CellEvent e;

        assert_ok(parse(line, &e));
        assert_eq(e.type, type);
        cell_event_done(&e);
}

TEST(events_have_types) {
        check_type("{\"type\":\"stdout\",\"text\":\"a\"}", CELL_STDOUT);
        check_type("{\"type\":\"stderr\",\"text\":\"a\"}", CELL_STDERR);
        check_type("{\"type\":\"result\"}", CELL_RESULT);
        check_type("{\"type\":\"error\"}", CELL_ERROR);
        check_type("{\"type\": \"end_of_execution\"}", CELL_END);
        check_type("{\"type\":\"keepalive\"}", CELL_OTHER);
        check_type("{\"type\":\"of a server to come\"}", CELL_OTHER);
}

TEST(what_is_no_event) {
        static const char *const lines[] = {
                "", "{", "x", "[]", "null", "1", "\"type\"", "{}", "{\"type\":1}", "{\"type\":null}",
                "{\"type\":\"stdout\"}x", "{\"type\":\"stdout\"} {}", "{'type':'stdout'}",
                "{\"type\":\"stdout\",\"text\":\"\xff\"}",
        };
        CellEvent e;

        for (size_t i = 0; i < ELEMENTSOF(lines); i++)
                assert_eq(parse(lines[i], &e), -EBADMSG);
}

TEST(text_has_what_a_string_can_have) {
        CellEvent e;
        size_t size;

        assert_ok(parse("{\"type\":\"stdout\",\"text\":\"a\\u0000\\u00e9\\ud834\\udd1e\\ud800\",\"n\":1}", &e));
        const char *text = cell_event_text(&e, "text", &size);
        /* half a pair is no character */
        assert_eq(size, 11u);
        assert_eq(memcmp(text, "a\0\303\251\360\235\204\236\357\277\275", 12), 0);
        assert_true(!cell_event_text(&e, "n", &size));
        assert_true(!cell_event_text(&e, "no such", &size));
        cell_event_done(&e);
}

/* {"type":"result","json":[0,0,...]} */
static char *many_values(size_t n) {
        char *text = malloc(n * 2 + 64), *p = stpcpy(text, "{\"type\":\"result\",\"json\":[0");

        for (size_t i = 1; i < n; i++)
                p = stpcpy(p, ",0");
        strcpy(p, "]}");
        return text;
}

TEST(values_are_bounded_before_they_are_parsed) {
        _cleanup_free_ char *allowed = many_values(CELL_VALUES_MAX - 10), *much = many_values(CELL_VALUES_MAX + 10);
        CellEvent e;

        assert_ok(parse(allowed, &e));
        cell_event_done(&e);
        assert_eq(parse(much, &e), -EBADMSG);
        assert_eq(parse("{\"type\":\"result\",\"json\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", &e), -EBADMSG);
}

TEST(commas_in_a_string_are_no_values) {
        size_t n = CELL_VALUES_MAX + 10;
        _cleanup_free_ char *text = malloc(n + 64);
        char *p = stpcpy(text, "{\"type\":\"stdout\",\"text\":\"\\\"");
        CellEvent e;

        memset(p, ',', n);
        strcpy(p + n, "\"}");
        assert_ok(parse(text, &e));
        cell_event_done(&e);
}

static int count_event(void *userdata, const CellEvent *e) {
        unsigned *n = userdata;

        (*n)++;
        return e->type == CELL_ERROR ? -ECANCELED : 0;
}

TEST(lines_come_in_any_pieces) {
        static const char stream[] = "{\"type\":\"stdout\",\"text\":\"a\"}\n{\"type\":\"keepalive\"}\n{\"type\":\"result\"}\n";

        for (size_t piece = 1; piece < sizeof(stream); piece++) {
                _cleanup_(cell_lines_done) CellLines l = {};
                unsigned n = 0;

                for (size_t at = 0; at < sizeof(stream) - 1; at += piece)
                        assert_ok(cell_lines_feed(&l, stream + at, MIN(piece, sizeof(stream) - 1 - at), count_event, &n));
                assert_eq(n, 3u);
        }
}

TEST(the_handler_ends_it) {
        static const char stream[] = "{\"type\":\"error\"}\n{\"type\":\"result\"}\n";
        _cleanup_(cell_lines_done) CellLines l = {};
        unsigned n = 0;

        assert_eq(cell_lines_feed(&l, stream, sizeof(stream) - 1, count_event, &n), -ECANCELED);
        assert_eq(n, 1u);
        assert_eq(cell_lines_feed(&l, "\n", 1, count_event, &n), -EBADMSG);
}

TEST(a_line_that_never_ends_is_refused) {
        _cleanup_(cell_lines_done) CellLines l = {};
        _cleanup_free_ char *piece = malloc(MIB(1));
        unsigned n = 0;

        memset(piece, ' ', MIB(1));
        for (uint64_t i = 0; i < CELL_LINE_MAX / MIB(1); i++)
                assert_ok(cell_lines_feed(&l, piece, MIB(1), count_event, &n));
        assert_eq(cell_lines_feed(&l, " ", 1, count_event, &n), -EBADMSG);
}

/* What is shown of events. */
typedef struct Shown {
        char *out, *err;
        size_t n_out, n_err;
        int result;
        CellOutput output;
} Shown;

static void shown_done(Shown *s) {
        free(s->out);
        free(s->err);
}

static Shown show(CellOutput output, const char *stream) {
        _cleanup_(cell_lines_done) CellLines l = {};
        Shown s = { .output = output };

        s.output.out = open_memstream(&s.out, &s.n_out);
        s.output.err = open_memstream(&s.err, &s.n_err);
        ctl_options.quiet = true;
        s.result = cell_lines_feed(&l, stream, strlen(stream), cell_output_event, &s.output);
        fclose(s.output.out);
        fclose(s.output.err);
        cell_output_done(&s.output);
        return s;
}

#define check_shown(output, stream, o, e)                                       \
        ({                                                                      \
                _cleanup_(shown_done) Shown _shown = show((output), (stream));  \
                assert_ok(_shown.result);                                       \
                assert_streq(_shown.out, o);                                    \
                assert_streq(_shown.err, e);                                    \
        })

TEST(streams_go_to_ours_as_they_are) {
        check_shown((CellOutput) {}, "{\"type\":\"stdout\",\"text\":\"a\\u001b[1m\\r\"}\n{\"type\":\"stderr\",\"text\":\"e\"}\n",
                    "a\033[1m\r", "e");
}

TEST(in_a_terminal_they_command_nothing) {
        static const CellOutput terminal = { .out_terminal = true, .err_terminal = true };

        check_shown(terminal, "{\"type\":\"stdout\",\"text\":\"\\u00e4\\u001b[2Ja\\u009b1mb\\u202ec\\u0000\\n\"}\n"
                    "{\"type\":\"stderr\",\"text\":\"\\u001b]0;x\\u0007\"}\n",
                    "\303\244\\x1b[2Ja\\xc2\\x9b1mb\\xe2\\x80\\xaec\\x00\n", "\\x1b]0;x\\x07");
        check_shown(terminal, "{\"type\":\"result\",\"text\":\"\\u001bc\"}\n{\"type\":\"result\",\"markdown\":\"\\u001b[5n\"}\n",
                    "\\x1bc\n\\x1b[5n\n", "");
        /* one of them may be a file */
        check_shown(((CellOutput) { .err_terminal = true }), "{\"type\":\"stdout\",\"text\":\"\\u001bc\"}\n{\"type\":\"stderr\",\"text\":\"\\u001bc\"}\n",
                    "\033c", "\\x1bc");
        check_shown(((CellOutput) { .out_terminal = true, .json = true }), "{\"type\":\"stdout\",\"text\":\"\\u009b\\u001b\"}\n",
                    "{\"type\":\"stdout\",\"text\":\"\\u009b\\u001b\"}\n", "");
}

/* What goes back to the begin of its line, as bars of progress do, would write over what stands there. */
TEST(in_a_terminal_a_return_begins_a_line) {
        static const CellOutput terminal = { .out_terminal = true };

        check_shown(terminal, "{\"type\":\"stdout\",\"text\":\"10%\\r20%\\r\\nend\\r\"}\n{\"type\":\"result\",\"text\":\"1\"}\n",
                    "10%\n20%\nend\n1\n", "");
}

/* In pieces, none of which ends amid a character. */
TEST(much_text_in_a_terminal) {
        _cleanup_free_ char *stream = NULL, *expected = NULL;
        const size_t n = 100000;
        char *p, *q;

        stream = p = malloc(3 * n + 64);
        expected = q = malloc(3 * n + 1);
        assert(p && q);
        p = stpcpy(p, "{\"type\":\"stdout\",\"text\":\"");
        for (size_t i = 0; i < n; i++, p += 3, q += 3) {
                memcpy(p, "\342\202\254", 3);
                memcpy(q, p, 3);
        }
        strcpy(p, "\"}\n");
        *q = 0;
        check_shown((CellOutput) { .out_terminal = true }, stream, expected, "");
}

TEST(a_result_stands_on_a_line_of_its_own) {
        check_shown((CellOutput) {}, "{\"type\":\"stdout\",\"text\":\"a\"}\n{\"type\":\"result\",\"text\":\"42\"}\n"
                    "{\"type\":\"result\",\"text\":\"43\\n\"}\n{\"type\":\"result\",\"text\":\"44\"}\n",
                    "a\n42\n43\n44\n", "");
}

TEST(markdown_is_read_before_the_name_of_its_object) {
        check_shown((CellOutput) {}, "{\"type\":\"result\",\"text\":\"<Markdown object>\",\"markdown\":\"*m*\"}\n", "*m*\n", "");
        check_shown((CellOutput) {}, "{\"type\":\"result\",\"text\":\"z**3/3\",\"latex\":\"$z$\"}\n", "z**3/3\n", "");
        check_shown((CellOutput) {}, "{\"type\":\"result\",\"latex\":\"$z$\"}\n", "$z$\n", "");
}

TEST(an_error_is_told_on_stderr_and_commands_no_terminal) {
        check_shown((CellOutput) {}, "{\"type\":\"error\",\"name\":\"E\",\"value\":\"v\",\"traceback\":\"line 1\\n\\u001b]0;E: v\"}\n",
                    "", "line 1\n\\x1b]0;E: v\n");
        /* where the traceback does not say it, or there is none */
        check_shown((CellOutput) {}, "{\"type\":\"error\",\"name\":\"E\",\"value\":\"v\",\"traceback\":\"line 1\\n\"}\n",
                    "", "line 1\nE: v\n");
        check_shown((CellOutput) {}, "{\"type\":\"error\",\"name\":\"E\",\"value\":\"v\"}\n", "", "E: v\n");
        check_shown((CellOutput) {}, "{\"type\":\"error\"}\n", "", ": \n");
}

TEST(it_knows_of_errors_and_of_the_end) {
        _cleanup_(shown_done) Shown failed = show((CellOutput) {}, "{\"type\":\"error\",\"name\":\"E\",\"value\":\"\"}\n");
        _cleanup_(shown_done) Shown ended = show((CellOutput) {}, "{\"type\":\"end_of_execution\"}\n");

        assert_true(failed.output.failed && !failed.output.ended);
        assert_true(ended.output.ended && !ended.output.failed);
}

TEST(a_picture_for_kitty) {
        check_shown((CellOutput) { .inline_images = INLINE_KITTY },
                    "{\"type\":\"stdout\",\"text\":\"a\"}\n{\"type\":\"result\",\"text\":\"<Figure>\",\"png\":\"" PNG_BASE64 "\"}\n",
                    "a\n\033_Ga=T,f=100,q=2,m=0;" PNG_BASE64 "\033\\\n", "");
}

TEST(a_large_picture_for_kitty_comes_in_pieces) {
        char base64[3 * 4096 + 1], stream[sizeof(base64) + 64];

        /* three and a bit: the first piece begins with what makes it a PNG */
        memset(base64, 'A', sizeof(base64) - 1);
        memcpy(base64, "iVBORw0KGgoA", 12);
        base64[sizeof(base64) - 1] = 0;
        snprintf(stream, sizeof(stream), "{\"type\":\"result\",\"png\":\"%s\"}\n", base64);
        _cleanup_(shown_done) Shown s = show((CellOutput) { .inline_images = INLINE_KITTY }, stream);
        assert_ok(s.result);
        assert_true(startswith(s.out, "\033_Ga=T,f=100,q=2,m=1;iVBORw0KGgoA"));
        assert_eq(memcmp(s.out + 21 + 4096, "\033\\\033_Gm=1;AAAA", 13), 0);
        assert_eq(memcmp(s.out + 21 + 4096 + 9 + 4096, "\033\\\033_Gm=0;AAAA", 13), 0);
        assert_eq(s.n_out, 21u + 3 * 4096 + 2 * 9 + 2 + 1);
}

TEST(a_picture_for_iterm) {
        check_shown((CellOutput) { .inline_images = INLINE_ITERM }, "{\"type\":\"result\",\"png\":\"" PNG_BASE64 "\"}\n",
                    "\033]1337;File=inline=1;size=12:" PNG_BASE64 "\a\n", "");
        check_shown((CellOutput) { .inline_images = INLINE_ITERM }, "{\"type\":\"result\",\"jpeg\":\"/9j/4AAQ\"}\n",
                    "\033]1337;File=inline=1;size=6:/9j/4AAQ\a\n", "");
}

/* Changes to a directory of its own, where files go that nobody named a place for. */
static void go_to(const TempDir *d) {
        assert(chdir(d->path) == 0);
}

static void check_file(const TempDir *d, const char *name, const char *expected, size_t size) {
        _cleanup_free_ char *text = NULL;
        size_t n;

        assert_ok(read_file(d->fd, name, KIB(64), &text, &n));
        assert_eq(n, size);
        assert_eq(memcmp(text, expected, size), 0);
}

static bool is_there(const TempDir *d, const char *name) {
        return faccessat(d->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

TEST(what_is_no_picture_is_not_put_into_a_sequence) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();

        go_to(&d);
        /* another file, no base64 at all, and something that would end the sequence */
        check_shown((CellOutput) { .inline_images = INLINE_KITTY }, "{\"type\":\"result\",\"png\":\"/9j/4AAQ\"}\n", "", "");
        assert_true(is_there(&d, "result-1.png"));
        check_shown((CellOutput) { .inline_images = INLINE_KITTY }, "{\"type\":\"result\",\"png\":\"iVBORw0KGgo\\u001b\\\\\"}\n",
                    "", "");
        check_shown((CellOutput) { .inline_images = INLINE_KITTY }, "{\"type\":\"result\",\"png\":[1]}\n", "", "");
        assert_true(!is_there(&d, "result-2.png"));
}

TEST(pictures_become_files_and_no_file_is_touched) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();

        go_to(&d);
        temp_dir_write(&d, "result-1.png", "mine", 4);
        assert(symlinkat("elsewhere", d.fd, "result-2.png") == 0);
        check_shown((CellOutput) {}, "{\"type\":\"result\",\"text\":\"<Figure>\",\"png\":\"" PNG_BASE64 "\",\"html\":\"h\"}\n"
                    "{\"type\":\"result\",\"jpeg\":\"/9j/4AAQ\"}\n", "<Figure>\n", "");
        check_file(&d, "result-1.png", "mine", 4);
        check_file(&d, "result-3.png", "\x89PNG\r\n\x1a\n\0\0\0\r", 12);
        check_file(&d, "result-4.jpeg", "\xff\xd8\xff\xe0\0\x10", 6);
        assert_true(!is_there(&d, "elsewhere") && !is_there(&d, "result-3.html"));
}

TEST(all_forms_go_to_a_directory) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();

        go_to(&d);
        check_shown(((CellOutput) { .directory = "new", .inline_images = INLINE_KITTY }),
                    "{\"type\":\"result\",\"text\":\"t\",\"png\":\"" PNG_BASE64 "\",\"html\":\"<b>\\u00e9\",\"json\":[1,{\"a\":\"b/c\"}],"
                    "\"chart\":{\"type\":\"line\"},\"extra\":{},\"data\":null,\"svg\":1}\n", "t\n", "");
        check_file(&d, "new/result-1.png", "\x89PNG\r\n\x1a\n\0\0\0\r", 12);
        check_file(&d, "new/result-1.html", "<b>\303\251", 5);
        check_file(&d, "new/result-1.json", "[1,{\"a\":\"b/c\"}]", 15);
        check_file(&d, "new/result-1.chart.json", "{\"type\":\"line\"}", 15);
        assert_true(!is_there(&d, "new/result-1.extra.json") && !is_there(&d, "new/result-1.data.json") &&
                    !is_there(&d, "new/result-1.svg"));
}

TEST(there_is_an_end_to_files) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(cell_lines_done) CellLines l = {};
        CellOutput o = { .out = stdout, .err = stderr };
        static const char line[] = "{\"type\":\"result\",\"png\":\"" PNG_BASE64 "\"}\n";
        int r = 0;

        go_to(&d);
        for (unsigned i = 0; r >= 0 && i < 5000; i++)
                r = cell_lines_feed(&l, line, sizeof(line) - 1, cell_output_event, &o);
        cell_output_done(&o);
        assert_eq(r, -EFBIG);
        assert_true(is_there(&d, "result-1000.png") && !is_there(&d, "result-1001.png"));
}

TEST(there_is_an_end_to_their_bytes) {
        _cleanup_temp_dir_ TempDir d = temp_dir_make();
        _cleanup_(cell_lines_done) CellLines l = {};
        CellOutput o = { .out = stdout, .err = stderr };
        static const char line[] = "{\"type\":\"result\",\"png\":\"" PNG_BASE64 "\"}\n";

        go_to(&d);
        assert_ok(cell_lines_feed(&l, line, sizeof(line) - 1, cell_output_event, &o));
        assert_eq(o.files.room, RESULT_BYTES_MAX - 12);
        o.files.room = 12 + 11;
        assert_ok(cell_lines_feed(&l, line, sizeof(line) - 1, cell_output_event, &o));
        assert_eq(cell_lines_feed(&l, line, sizeof(line) - 1, cell_output_event, &o), -EFBIG);
        assert_true(is_there(&d, "result-2.png") && !is_there(&d, "result-3.png"));
        cell_output_done(&o);
}

TEST(events_themselves) {
        check_shown((CellOutput) { .json = true },
                    "{\"type\":\"result\", \"text\":\"a/b\\u0007\", \"png\":\"" PNG_BASE64 "\"}\n{\"type\":\"error\"}\n",
                    "{\"type\":\"result\",\"text\":\"a/b\\u0007\",\"png\":\"" PNG_BASE64 "\"}\n{\"type\":\"error\"}\n", "");
}

TEST(nobody_reads) {
        _cleanup_(cell_lines_done) CellLines l = {};
        CellOutput o = { .out = fopen("/dev/full", "w"), .err = stderr };
        static const char line[] = "{\"type\":\"stdout\",\"text\":\"a\"}\n";

        assert_true(o.out);
        assert_eq(cell_lines_feed(&l, line, sizeof(line) - 1, cell_output_event, &o), -ENOSPC);
        fclose(o.out);
}
