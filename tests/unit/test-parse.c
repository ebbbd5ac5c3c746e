/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "tests/unit/test.h"

TEST(numbers) {
        uint64_t u;
        uint32_t v;

        assert_ok(parse_u64("0", &u));
        assert_eq(u, 0);
        assert_ok(parse_u64("18446744073709551615", &u));
        assert_true(u == UINT64_MAX);
        assert_eq(parse_u64("18446744073709551616", &u), -ERANGE);
        assert_eq(parse_u64("99999999999999999999999", &u), -ERANGE);
        assert_ok(parse_u32("4294967295", &v));
        assert_true(v == UINT32_MAX);
        assert_eq(parse_u32("4294967296", &v), -ERANGE);

        static const char *const bad[] = { "", " 1", "1 ", "-1", "+1", "0x10", "1.5", "one", "1k" };
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                assert_eq(parse_u64(bad[i], &u), -EINVAL);
                assert_eq(parse_u32(bad[i], &v), -EINVAL);
        }
}

TEST(sizes) {
        static const struct {
                const char *text;
                uint64_t bytes;
        } good[] = {
                { "0", 0 }, { "4096", 4096 }, { "1K", 1024 }, { "512M", MIB(512) }, { "512MiB", MIB(512) },
                { "512MB", MIB(512) }, { "1g", GIB(1) }, { "1.5G", GIB(1) + MIB(512) }, { "0.5K", 512 },
                { "2T", GIB(2048) }, { "7B", 7 }, { "16777215T", UINT64_C(16777215) << 40 },
        };
        uint64_t u;

        for (size_t i = 0; i < ELEMENTSOF(good); i++) {
                assert_ok(parse_size(good[i].text, &u));
                assert_eq(u, good[i].bytes);
        }
        assert_eq(parse_size("16777216T", &u), -ERANGE);
        assert_eq(parse_size("99999999999999999999", &u), -ERANGE);

        static const char *const bad[] = { "", "M", "1X", "1MM", "1 M", "-1M", "1.M", "1iB", "1MBB", ".5M", "1e3" };
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                assert_eq(parse_size(bad[i], &u), -EINVAL);
}

TEST(times) {
        static const struct {
                const char *text;
                uint64_t usec;
        } good[] = {
                { "30", 30 * USEC_PER_SEC }, { "30s", 30 * USEC_PER_SEC }, { "5min", 300 * USEC_PER_SEC },
                { "1h 30min", 5400 * USEC_PER_SEC }, { "1h30min", 5400 * USEC_PER_SEC }, { "250ms", 250000 },
                { "1.5s", 1500000 }, { "0.25", 250000 }, { "2d", 172800 * USEC_PER_SEC }, { "17us", 17 },
                { "1 s", USEC_PER_SEC }, { "0", 0 }, { "infinity", UINT64_MAX }, { "3 hour", 10800 * USEC_PER_SEC },
        };
        uint64_t u;

        for (size_t i = 0; i < ELEMENTSOF(good); i++) {
                assert_ok(parse_usec(good[i].text, &u));
                assert_true(u == good[i].usec);
        }
        assert_eq(parse_usec("999999999999999999d", &u), -ERANGE);

        static const char *const bad[] = { "", "s", "1x", "-1s", "1h -1min", "infinit", "infinity s", "1..5s", " 1s" };
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                assert_eq(parse_usec(bad[i], &u), -EINVAL);
}

TEST(booleans) {
        assert_eq(parse_bool("yes"), 1);
        assert_eq(parse_bool("true"), 1);
        assert_eq(parse_bool("on"), 1);
        assert_eq(parse_bool("1"), 1);
        assert_eq(parse_bool("no"), 0);
        assert_eq(parse_bool("false"), 0);
        assert_eq(parse_bool("off"), 0);
        assert_eq(parse_bool("0"), 0);
        assert_eq(parse_bool(""), -EINVAL);
        assert_eq(parse_bool("maybe"), -EINVAL);
}

TEST(cpu_quota) {
        uint64_t u;

        assert_ok(parse_cpu_quota("50%", &u));
        assert_eq(u, 500000);
        assert_ok(parse_cpu_quota("150%", &u));
        assert_eq(u, 1500000);
        assert_ok(parse_cpu_quota("0.5%", &u));
        assert_eq(u, 5000);
        assert_eq(parse_cpu_quota("0%", &u), -ERANGE);
        assert_eq(parse_cpu_quota("99999999999999999%", &u), -ERANGE);
        assert_eq(parse_cpu_quota("50", &u), -EINVAL);
        assert_eq(parse_cpu_quota("%", &u), -EINVAL);
        assert_eq(parse_cpu_quota("50%%", &u), -EINVAL);
}

TEST(sandbox_ids) {
        assert_true(sandbox_id_valid("abcdefghijkl"));
        assert_true(sandbox_id_valid("a0123456789012345678"));
        assert_true(!sandbox_id_valid("abcdefghijk"));
        assert_true(!sandbox_id_valid("a01234567890123456789"));
        assert_true(!sandbox_id_valid("0bcdefghijkl"));
        assert_true(!sandbox_id_valid("Abcdefghijkl"));
        assert_true(!sandbox_id_valid("abcdefghijk/"));
        assert_true(!sandbox_id_valid("abcdefghijk\n"));
        assert_true(!sandbox_id_valid(""));
        assert_true(!sandbox_id_valid(NULL));
}

TEST(template_names) {
        char longest[65];

        memset(longest, 'x', sizeof(longest));
        longest[63] = 0;
        assert_true(template_name_valid(longest));
        longest[63] = 'x';
        longest[64] = 0;
        assert_true(!template_name_valid(longest));

        assert_true(template_name_valid("python"));
        assert_true(template_name_valid("Python-3.11_x"));
        assert_true(template_name_valid("3"));
        assert_true(!template_name_valid(""));
        assert_true(!template_name_valid(NULL));
        assert_true(!template_name_valid(".."));
        assert_true(!template_name_valid("-x"));
        assert_true(!template_name_valid("a/b"));
        assert_true(!template_name_valid("a:b"));
        assert_true(!template_name_valid("a b"));
        assert_true(!template_name_valid("\xc3\xa4"));
}

TEST(environment_assignments) {
        assert_true(env_assignment_valid("A=b"));
        assert_true(env_assignment_valid("_A1="));
        assert_true(env_assignment_valid("A=b=c\nd"));
        assert_true(!env_assignment_valid("A"));
        assert_true(!env_assignment_valid("=b"));
        assert_true(!env_assignment_valid("1A=b"));
        assert_true(!env_assignment_valid("A B=c"));
        assert_true(!env_assignment_valid(""));
        assert_true(!env_assignment_valid(NULL));
}

TEST(sizes_are_shown) {
        char buf[FORMAT_SIZE_MAX];

        assert_streq(format_size(buf, 0), "0B");
        assert_streq(format_size(buf, 1023), "1023B");
        assert_streq(format_size(buf, 1024), "1K");
        assert_streq(format_size(buf, MIB(512)), "512M");
        assert_streq(format_size(buf, GIB(1) + MIB(512)), "1.5G");
        assert_true(strlen(format_size(buf, UINT64_MAX)) < FORMAT_SIZE_MAX);
}

TEST(times_are_shown) {
        char buf[FORMAT_USEC_MAX];
        uint64_t u;

        assert_streq(format_usec(buf, 0), "0");
        assert_streq(format_usec(buf, UINT64_MAX), "infinity");
        assert_streq(format_usec(buf, 250000), "250ms");
        assert_streq(format_usec(buf, 90 * USEC_PER_SEC), "1min 30s");

        /* What is shown can be read back. */
        static const uint64_t values[] = { 1, 999, 1000, USEC_PER_SEC, 3600 * USEC_PER_SEC, 90061 * USEC_PER_SEC };
        for (size_t i = 0; i < ELEMENTSOF(values) - 1; i++) {
                assert_ok(parse_usec(format_usec(buf, values[i]), &u));
                assert_eq(u, values[i]);
        }
        assert_true(strlen(format_usec(buf, UINT64_MAX - 1)) < FORMAT_USEC_MAX);
}
