/* SPDX-License-Identifier: Apache-2.0 */
#include "dbus/policy-change.h"
#include "tests/unit/test.h"

#define LIST(...) ((char *[]) { __VA_ARGS__ __VA_OPT__(,) NULL })
#define R(s) ((char *) (s))

static void assert_list(char **l, char **expected) {
        for (; *expected; l++, expected++)
                assert_streq(*l, *expected);
        assert_true(!*l);
}

TEST(rules_come_and_go) {
        SandboxPolicy now = { .internet = true, .allow = LIST(R("a"), R("b"), R("c")), .deny = LIST(R("x")) };
        SandboxPolicy add = { .allow = LIST(R("d")), .inbound = LIST(R("all")) };
        SandboxPolicy remove = { .allow = LIST(R("b")), .deny = LIST(R("x")) };
        SandboxPolicy next;
        const char *missing;

        assert_ok(policy_change(&now, &add, &remove, &next, &missing));
        assert_true(next.internet);
        assert_list(next.allow, LIST(R("a"), R("c"), R("d")));
        assert_list(next.deny, LIST());
        assert_list(next.inbound, LIST(R("all")));
        sandbox_policy_done(&next);
}

TEST(a_rule_that_is_there_is_not_added_again) {
        SandboxPolicy now = { .allow = LIST(R("a"), R("b")) }, add = { .allow = LIST(R("b"), R("c")) }, next;
        const char *missing;

        assert_ok(policy_change(&now, &add, &SANDBOX_POLICY_INIT, &next, &missing));
        assert_list(next.allow, LIST(R("a"), R("b"), R("c")));
        sandbox_policy_done(&next);
        /* the same list elsewhere is another one */
        add = (SandboxPolicy) { .deny = LIST(R("b")) };
        assert_ok(policy_change(&now, &add, &SANDBOX_POLICY_INIT, &next, &missing));
        assert_list(next.deny, LIST(R("b")));
        sandbox_policy_done(&next);
}

TEST(what_is_removed_and_added_comes_last) {
        SandboxPolicy now = { .allow = LIST(R("a"), R("b")) }, same = { .allow = LIST(R("a")) }, next;
        const char *missing;

        assert_ok(policy_change(&now, &same, &same, &next, &missing));
        assert_list(next.allow, LIST(R("b"), R("a")));
        sandbox_policy_done(&next);
}

TEST(all_copies_of_a_rule_go) {
        SandboxPolicy now = { .allow = LIST(R("a"), R("b"), R("a")) }, remove = { .allow = LIST(R("a")) }, next;
        const char *missing;

        assert_ok(policy_change(&now, &SANDBOX_POLICY_INIT, &remove, &next, &missing));
        assert_list(next.allow, LIST(R("b")));
        sandbox_policy_done(&next);
}

TEST(what_is_not_there_can_not_be_removed) {
        SandboxPolicy now = { .allow = LIST(R("a")), .deny = LIST(R("b")) }, next = SANDBOX_POLICY_INIT;
        SandboxPolicy remove = { .allow = LIST(R("a"), R("b")) };
        const char *missing = NULL;

        assert_eq(policy_change(&now, &SANDBOX_POLICY_INIT, &remove, &next, &missing), -ESRCH);
        assert_streq(missing, "b");
        assert_true(!next.allow && !next.deny);
}
