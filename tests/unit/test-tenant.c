/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tenant.h"
#include "tests/unit/test.h"

#define LONGEST "abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-0123456789"

TEST(names) {
        static const char *const good[] = { "a", "0", "acme", "Acme-2.eu_west", "k1a2b3c4d5e6f7a8", LONGEST + 1 };
        static const char *const bad[] = { "", ".", "..", "-a", "_a", "a/b", "a b", "a\n", "a=b", "\xc3\xa4", "a:b", LONGEST };

        for (size_t i = 0; i < ELEMENTSOF(good); i++)
                if (!tenant_name_valid(good[i]))
                        test_stop(TEST_FAILED, __LINE__, "%s is none", good[i]);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (tenant_name_valid(bad[i]))
                        test_stop(TEST_FAILED, __LINE__, "'%s' is one", bad[i]);
        assert_true(!tenant_name_valid(NULL));
        assert_eq(strlen(LONGEST), TENANT_NAME_MAX);
}

TEST(a_tenant_is_uid_and_name) {
        assert_true(tenant_same(1, "a", 1, "a"));
        assert_true(!tenant_same(1, "a", 2, "a"));
        assert_true(!tenant_same(1, "a", 1, "b"));
        assert_true(!tenant_same(1, "a", 1, NULL));
        assert_true(tenant_same(1, "", 1, NULL));
}

TEST(each_has_a_directory_of_its_own) {
        static const char *const bad[] = { "", ".acme", "x", "1.", "1..", "1./x", "-1", "1.a/b", "4294967295", "99999999999.a", " 1" };
        char dir[TENANT_DIR_MAX], name[TENANT_NAME_MAX];
        uid_t uid;

        assert_streq(tenant_dir_format(dir, 1000, NULL), "1000");
        assert_ok(tenant_dir_parse(dir, &uid, name));
        assert_true(uid == 1000 && !*name);
        assert_streq(tenant_dir_format(dir, 4294967294, "a.b"), "4294967294.a.b");
        assert_ok(tenant_dir_parse(dir, &uid, name));
        assert_eq(uid, 4294967294);
        assert_streq(name, "a.b");
        (void) tenant_dir_format(dir, 4294967294, LONGEST + 1);
        assert_ok(tenant_dir_parse(dir, &uid, name));
        assert_streq(name, LONGEST + 1);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                if (tenant_dir_parse(bad[i], &uid, name) >= 0)
                        test_stop(TEST_FAILED, __LINE__, "'%s' is one", bad[i]);
}
