/* SPDX-License-Identifier: Apache-2.0 */

/* Policies as values: copied, compared, changed, written down and read again; what is odd is refused. */

#include "daemon/json-strict.h"
#include "daemon/sandbox-policy.h"
#include "tests/unit/test.h"

#define LIST(...) ((char *[]) { __VA_ARGS__, NULL })

static char a[] = "10.0.0.0/8 tcp:443", b[] = "example.com", c[] = "8.8.8.8 udp:53",
        tabbed[] = "192.0.2.0/24\ttcp:80";

TEST(a_copy_is_equal_and_its_own) {
        const SandboxPolicy p = { .internet = true, .allow = LIST(a, b), .inbound = LIST(c) };
        SandboxPolicy copy;

        assert_ok(sandbox_policy_copy(&p, &copy));
        assert_true(sandbox_policy_equal(&p, &copy));
        assert_true(copy.allow[0] != p.allow[0] && !copy.allow[2] && !copy.deny);
        sandbox_policy_done(&copy);
        assert_true(!copy.internet && !copy.allow && !copy.inbound);
        sandbox_policy_done(&copy);
}

TEST(order_does_not_count_lists_do) {
        const SandboxPolicy p = { .allow = LIST(a, b) };

        assert_true(sandbox_policy_equal(&p, &(SandboxPolicy) { .allow = LIST(b, a) }));
        assert_true(!sandbox_policy_equal(&p, &(SandboxPolicy) { .deny = LIST(a, b) }));
        assert_true(!sandbox_policy_equal(&p, &(SandboxPolicy) { .allow = LIST(a) }));
        assert_true(!sandbox_policy_equal(&p, &(SandboxPolicy) { .allow = LIST(a, c) }));
        assert_true(!sandbox_policy_equal(&p, &(SandboxPolicy) { .allow = LIST(a, a) }));
        assert_true(!sandbox_policy_equal(&p, &(SandboxPolicy) { .internet = true, .allow = LIST(a, b) }));
        /* No list and one without rules are the same. */
        assert_true(sandbox_policy_equal(&p, &(SandboxPolicy) { .allow = LIST(a, b), .deny = (char *[]) { NULL } }));
}

static unsigned n_sorts;

void __real_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));
void __wrap_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));
void __wrap_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *)) {
        n_sorts++;
        __real_qsort(base, n, size, compare);
}

TEST(what_stands_in_the_same_order_is_not_sorted) {
        const SandboxPolicy p = { .allow = LIST(a, b), .deny = LIST(c) };

        n_sorts = 0;
        assert_true(sandbox_policy_equal(&p, &(SandboxPolicy) { .allow = LIST(a, b), .deny = LIST(c) }));
        assert_eq(n_sorts, 0);
        assert_true(sandbox_policy_equal(&p, &(SandboxPolicy) { .allow = LIST(b, a), .deny = LIST(c) }));
        assert_eq(n_sorts, 2);
}

TEST(equal_ones_have_one_hash) {
        const SandboxPolicy p = { .allow = LIST(a, b) };
        uint64_t h = sandbox_policy_hash(&p);

        assert_true(h == sandbox_policy_hash(&(SandboxPolicy) { .allow = LIST(b, a), .deny = (char *[]) { NULL } }));
        assert_true(h != sandbox_policy_hash(&(SandboxPolicy) { .deny = LIST(a, b) }));
        assert_true(h != sandbox_policy_hash(&(SandboxPolicy) { .allow = LIST(a), .deny = LIST(b) }));
        assert_true(h != sandbox_policy_hash(&(SandboxPolicy) { .allow = LIST(a, c) }));
        assert_true(h != sandbox_policy_hash(&(SandboxPolicy) { .internet = true, .allow = LIST(a, b) }));
        assert_true(sandbox_policy_hash(&SANDBOX_POLICY_INIT) != sandbox_policy_hash(&(SandboxPolicy) { .internet = true }));
}

TEST(which_one_lets_nothing_pass) {
        assert_true(sandbox_policy_is_deny(&SANDBOX_POLICY_INIT));
        assert_true(sandbox_policy_is_deny(&(SandboxPolicy) { .deny = LIST(a), .allow = (char *[]) { NULL } }));
        assert_true(!sandbox_policy_is_deny(&(SandboxPolicy) { .internet = true }));
        assert_true(!sandbox_policy_is_deny(&(SandboxPolicy) { .allow = LIST(a) }));
        assert_true(!sandbox_policy_is_deny(&(SandboxPolicy) { .inbound = LIST(a) }));
}

TEST(json_comes_back) {
        const SandboxPolicy all[] = {
                SANDBOX_POLICY_INIT,
                { .internet = true },
                { .internet = true, .allow = LIST(a), .deny = LIST(b, c), .inbound = LIST(c) },
                /* between the words of a rule there may be blanks of both kinds */
                { .allow = LIST(tabbed) },
        };

        for (size_t i = 0; i < ELEMENTSOF(all); i++) {
                _cleanup_json_ json_object *o = NULL;
                SandboxPolicy back;

                assert_ok(sandbox_policy_to_json(&all[i], &o));
                assert_ok(sandbox_policy_from_json(o, &back));
                assert_true(sandbox_policy_equal(&all[i], &back));
                sandbox_policy_done(&back);
        }
}

TEST(odd_json_is_refused) {
        static const char *const texts[] = {
                "{}", "{\"default\":\"all\"}", "{\"default\":1}", "{\"default\":\"deny\",\"more\":1}",
                "{\"default\":\"deny\",\"allow\":\"x\"}", "{\"default\":\"deny\",\"allow\":[]}",
                "{\"default\":\"deny\",\"allow\":[1]}", "{\"default\":\"deny\",\"allow\":[\"\"]}",
                "{\"default\":\"deny\",\"deny\":[\"a\\nb\"]}", "{\"default\":\"deny\",\"inbound\":[\"a\\u0000b\"]}",
                "{\"default\":\"deny\",\"inbound\":[\"\\u00e4.example\"]}",
        };

        for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
                _cleanup_json_ json_object *o = NULL;
                SandboxPolicy p;

                assert_ok(json_parse_strict(texts[i], strlen(texts[i]), &o));
                if (sandbox_policy_from_json(o, &p) != -EBADMSG)
                        test_stop(TEST_FAILED, __LINE__, "%s was not refused", texts[i]);
        }
}

static int parse_with_rules(size_t n, size_t bytes) {
        _cleanup_json_ json_object *o = json_object_new_object();
        json_object *list = json_object_new_array();
        _cleanup_free_ char *rule = malloc(bytes + 1);
        SandboxPolicy p;

        memset(rule, 'x', bytes);
        rule[bytes] = 0;
        assert_ok(json_add_string(o, "default", "deny"));
        for (size_t i = 0; i < n; i++)
                assert_ok(json_object_array_add(list, json_object_new_string(rule)));
        assert_ok(json_add(o, "allow", list));
        int r = sandbox_policy_from_json(o, &p);
        if (r >= 0)
                sandbox_policy_done(&p);
        return r;
}

TEST(there_are_bounds) {
        assert_eq(parse_with_rules(4096, 400), 0);
        assert_eq(parse_with_rules(4097, 1), -EBADMSG);
        assert_eq(parse_with_rules(1, 401), -EBADMSG);
}

/* Some rules more and some less. */

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

        assert_ok(sandbox_policy_change(&now, &add, &remove, &next, &missing));
        assert_true(next.internet);
        assert_list(next.allow, LIST(R("a"), R("c"), R("d")));
        assert_list(next.deny, (char *[]) { NULL });
        assert_list(next.inbound, LIST(R("all")));
        sandbox_policy_done(&next);
}

TEST(a_rule_that_is_there_is_not_added_again) {
        SandboxPolicy now = { .allow = LIST(R("a"), R("b")) }, add = { .allow = LIST(R("b"), R("c")) }, next;
        const char *missing;

        assert_ok(sandbox_policy_change(&now, &add, &SANDBOX_POLICY_INIT, &next, &missing));
        assert_list(next.allow, LIST(R("a"), R("b"), R("c")));
        sandbox_policy_done(&next);
        /* the same list elsewhere is another one */
        add = (SandboxPolicy) { .deny = LIST(R("b")) };
        assert_ok(sandbox_policy_change(&now, &add, &SANDBOX_POLICY_INIT, &next, &missing));
        assert_list(next.deny, LIST(R("b")));
        sandbox_policy_done(&next);
}

TEST(what_is_removed_and_added_comes_last) {
        SandboxPolicy now = { .allow = LIST(R("a"), R("b")) }, same = { .allow = LIST(R("a")) }, next;
        const char *missing;

        assert_ok(sandbox_policy_change(&now, &same, &same, &next, &missing));
        assert_list(next.allow, LIST(R("b"), R("a")));
        sandbox_policy_done(&next);
}

TEST(all_copies_of_a_rule_go) {
        SandboxPolicy now = { .allow = LIST(R("a"), R("b"), R("a")) }, remove = { .allow = LIST(R("a")) }, next;
        const char *missing;

        assert_ok(sandbox_policy_change(&now, &SANDBOX_POLICY_INIT, &remove, &next, &missing));
        assert_list(next.allow, LIST(R("b")));
        sandbox_policy_done(&next);
}

TEST(what_is_not_there_can_not_be_removed) {
        SandboxPolicy now = { .allow = LIST(R("a")), .deny = LIST(R("b")) }, next = SANDBOX_POLICY_INIT;
        SandboxPolicy remove = { .allow = LIST(R("a"), R("b")) };
        const char *missing = NULL;

        assert_eq(sandbox_policy_change(&now, &SANDBOX_POLICY_INIT, &remove, &next, &missing), -ESRCH);
        assert_streq(missing, "b");
        assert_true(!next.allow && !next.deny);
}
