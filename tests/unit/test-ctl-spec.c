/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/spec.h"
#include "tests/unit/test.h"

typedef int (*PairParser)(const char *, char **, char **);

static void check_pair(PairParser parse, const char *s, const char *left, const char *right) {
        char *a = NULL, *b = NULL;
        int r = parse(s, &a, &b);

        if (left) {
                assert_eq(r, 0);
                assert_streq(a, left);
                assert_streq(b, right);
        } else
                assert_eq(r, -EINVAL);
        free(a);
        free(b);
}

TEST(in_is_split_at_the_last_absolute_path) {
        check_pair(spec_parse_in, "file:/path", "file", "/path");
        check_pair(spec_parse_in, "a:b:/path", "a:b", "/path");
        check_pair(spec_parse_in, "/a:/b:/path", "/a:/b", "/path");
        check_pair(spec_parse_in, "/dir/file:/tmp/with:colon", "/dir/file", "/tmp/with:colon");
        check_pair(spec_parse_in, "file:path", NULL, NULL);
        check_pair(spec_parse_in, ":/path", NULL, NULL);
        check_pair(spec_parse_in, "file", NULL, NULL);
        check_pair(spec_parse_in, "", NULL, NULL);
}

TEST(out_is_split_at_the_first_colon) {
        check_pair(spec_parse_out, "/path:file", "/path", "file");
        check_pair(spec_parse_out, "/path:a:b", "/path", "a:b");
        check_pair(spec_parse_out, "path:file", NULL, NULL);
        check_pair(spec_parse_out, "/path:", NULL, NULL);
        check_pair(spec_parse_out, "/path", NULL, NULL);
        check_pair(spec_parse_out, "", NULL, NULL);
}

TEST(copy_knows_what_is_in_a_sandbox) {
        char *id = NULL, *path = NULL;

        assert_eq(spec_parse_copy("abcdefghijkl:/etc/passwd", &id, &path), 0);
        assert_streq(id, "abcdefghijkl");
        assert_streq(path, "/etc/passwd");
        free(id);
        free(path);

        const char *local[] = { "file", "./abcdefghijkl:/x", "/a:b", "short:/x", "ABCDEFGHIJKL:/x", "host:file" };
        for (size_t i = 0; i < ELEMENTSOF(local); i++) {
                assert_eq(spec_parse_copy(local[i], &id, &path), 0);
                assert_true(!id);
                assert_streq(path, local[i]);
                free(path);
        }
        assert_eq(spec_parse_copy("abcdefghijkl:relative", &id, &path), -EINVAL);
        assert_eq(spec_parse_copy("abcdefghijkl:", &id, &path), -EINVAL);
        assert_eq(spec_parse_copy("", &id, &path), -EINVAL);
}

TEST(ports) {
        uint16_t local, port;

        assert_eq(spec_parse_forward("80", &local, &port), 0);
        assert_true(local == 80 && port == 80);
        assert_eq(spec_parse_forward("8080:80", &local, &port), 0);
        assert_true(local == 8080 && port == 80);
        assert_eq(spec_parse_forward("0:65535", &local, &port), 0);
        assert_true(local == 0 && port == 65535);

        const char *bad[] = { "", ":", "80:", ":80", "0", "65536", "8080:0", "a", "80:a", "-1", "1:2:3", "8 0" };
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                assert_true(spec_parse_forward(bad[i], &local, &port) < 0);
}

TEST(names_that_lead_elsewhere_are_no_names) {
        char long_name[300];

        memset(long_name, 'x', sizeof(long_name) - 1);
        long_name[sizeof(long_name) - 1] = 0;
        assert_true(filename_valid("a") && filename_valid("...") && filename_valid(".hidden") && filename_valid("a b"));
        assert_true(!filename_valid("") && !filename_valid(".") && !filename_valid("..") && !filename_valid("a/b"));
        assert_true(!filename_valid("/") && !filename_valid("../x") && !filename_valid(long_name));
}

static void check_last(const char *path, const char *expected) {
        char *s = path_last(path);

        if (expected) {
                assert_true(s);
                assert_streq(s, expected);
        } else
                assert_true(!s);
        free(s);
}

TEST(last_component) {
        check_last("a", "a");
        check_last("/a/b", "b");
        check_last("/a/b//", "b");
        check_last("/", NULL);
        check_last("", NULL);
        check_last("/a/..", NULL);
        check_last(".", NULL);
}

TEST(join) {
        char *s;

        assert_eq(path_join("/a", "b", &s), 0);
        assert_streq(s, "/a/b");
        free(s);
        assert_eq(path_join("/", "b", &s), 0);
        assert_streq(s, "/b");
        free(s);
}
