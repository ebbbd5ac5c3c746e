/* SPDX-License-Identifier: Apache-2.0 */

/* Which names a policy lets be asked for, and what their addresses are opened for; from the text of rules on. */

#include "net/name-table.h"
#include "net/network-names.h"
#include "tests/unit/test.h"

static NameTable *table(PolicyDefault def, const char *const *rules) {
        _cleanup_(policy_freep) Policy *p = NULL;
        _cleanup_(policy_table_freep) PolicyTable *compiled = NULL;
        char error[POLICY_ERROR_MAX];
        NameTable *t;

        assert_ok(policy_new(def, &p));
        for (; *rules; rules++)
                assert_ok(policy_add(p, POLICY_ALLOW, *rules, error));
        assert_ok(policy_compile(p, NULL, 0, &compiled, error));
        assert_ok(network_name_table(compiled, &t));
        return t;
}

static size_t opens(const NameTable *t, const char *name, const char *address, NetRule ret[static NET_NAME_RULES]) {
        Prefix p;

        assert_ok(prefix_parse(address, &p));
        return name_table_open(t, name, &p, prefix_is_special(&p), ret);
}

TEST(a_name_is_itself_and_a_wildcard_what_lies_below) {
        static const char *const rules[] = { "one.example", "*.two.example", "*.Deep.two.Example.", NULL };
        _cleanup_(name_table_freep) NameTable *t = table(POLICY_DEFAULT_DENY, rules);
        static const struct { const char *name; bool allowed; } cases[] = {
                { "one.example", true }, { "a.one.example", false }, { "one.example.org", false }, { "xone.example", false },
                { "two.example", false }, { "a.two.example", true }, { "a.b.c.two.example", true }, { "atwo.example", false },
                { "deep.two.example", true }, { "x.deep.two.example", true }, { "example", false }, { "", false }, { ".", false },
                { "..two.example", true }, { "com", false },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                if (name_table_allows(t, cases[i].name) != cases[i].allowed)
                        test_stop(TEST_FAILED, __LINE__, "%s", cases[i].name);
        assert_true(!name_table_all(t));
}

TEST(all_names_when_the_internet_is_open) {
        static const char *const rules[] = { "db.example in 10.0.0.0/8", NULL };
        _cleanup_(name_table_freep) NameTable *t = table(POLICY_DEFAULT_INTERNET, rules);
        NetRule r[NET_NAME_RULES];

        assert_true(name_table_all(t) && name_table_allows(t, "any.example"));
        assert_eq(opens(t, "any.example", "8.8.8.8", r), 0);
        assert_eq(opens(t, "db.example", "10.1.2.3", r), 1);
        assert_eq(r[0].flags, NET_RULE_ALL|NET_RULE_SPECIAL);
}

TEST(rules_of_one_name_add_up) {
        static const char *const rules[] = { "a.example tcp:443", "a.example udp", "*.example icmp", "b.example tcp", NULL };
        _cleanup_(name_table_freep) NameTable *t = table(POLICY_DEFAULT_DENY, rules);
        NetRule r[NET_NAME_RULES];

        assert_eq(opens(t, "a.example", "8.8.8.8", r), 1);
        assert_eq(r[0].flags, NET_RULE_TCP_PORTS|NET_RULE_UDP|NET_RULE_ICMP);
        assert_eq(opens(t, "c.example", "8.8.8.8", r), 1);
        assert_eq(r[0].flags, NET_RULE_ICMP);
        assert_eq(opens(t, "b.example", "8.8.8.8", r), 1);
        assert_eq(r[0].flags, NET_RULE_TCP|NET_RULE_ICMP);
}

TEST(special_ranges_open_only_in_their_rule) {
        static const char *const rules[] = { "*.example", "db.example in 10.1.0.0/16 tcp:5432", "db.example in 10.0.0.0/8 tcp:22",
                                             "wide.test in 0.0.0.0/0", "net.test in 203.0.113.0/24", NULL };
        _cleanup_(name_table_freep) NameTable *t = table(POLICY_DEFAULT_DENY, rules);
        NetRule r[NET_NAME_RULES];

        assert_eq(opens(t, "web.example", "10.1.2.3", r), 0);
        assert_eq(opens(t, "web.example", "::1", r), 0);
        assert_eq(opens(t, "web.example", "2001:db8::1", r), 1);
        /* The narrower rule has the wider one's port, too. */
        assert_eq(opens(t, "db.example", "10.1.2.3", r), 2);
        assert_eq(r[0].flags, NET_RULE_TCP_PORTS|NET_RULE_SPECIAL);
        assert_eq(opens(t, "db.example", "10.2.2.3", r), 1);
        assert_eq(opens(t, "db.example", "192.168.1.1", r), 0);
        assert_eq(opens(t, "db.example", "8.8.8.8", r), 1);
        /* It does not lie in a special range, so it opens none. */
        assert_eq(opens(t, "wide.test", "10.1.2.3", r), 0);
        assert_eq(opens(t, "wide.test", "8.8.8.8", r), 1);
        assert_eq(opens(t, "net.test", "203.0.113.7", r), 1);
        assert_eq(opens(t, "net.test", "8.8.8.8", r), 0);
}

/* The narrower has the wider one's ports in it, so that none is lost, in whatever order the rules were given. */
TEST(the_narrowest_rule_of_a_name_comes_first) {
        static const char *const rules[][8] = {
                { "a.example in 10.0.0.0/8 tcp:1", "a.example in 10.0.0.0/12 tcp:2", "a.example in 10.0.0.0/16 tcp:3",
                  "a.example in 10.0.0.0/20 tcp:4", "a.example in 10.0.0.0/24 icmp", "a.example in 10.0.0.0/28 udp", NULL },
                { "a.example in 10.0.0.0/28 udp", "a.example in 10.0.0.0/24 icmp", "a.example in 10.0.0.0/20 tcp:4",
                  "a.example in 10.0.0.0/16 tcp:3", "a.example in 10.0.0.0/12 tcp:2", "a.example in 10.0.0.0/8 tcp:1", NULL },
        };

        for (size_t i = 0; i < ELEMENTSOF(rules); i++) {
                _cleanup_(name_table_freep) NameTable *t = table(POLICY_DEFAULT_DENY, rules[i]);
                NetRule r[NET_NAME_RULES];

                assert_eq(opens(t, "a.example", "10.0.0.1", r), NET_NAME_RULES);
                assert_eq(r[0].flags, NET_RULE_TCP_PORTS|NET_RULE_UDP|NET_RULE_ICMP|NET_RULE_SPECIAL);
                assert_eq(opens(t, "a.example", "10.0.0.16", r), NET_NAME_RULES);
                assert_eq(r[0].flags, NET_RULE_TCP_PORTS|NET_RULE_ICMP|NET_RULE_SPECIAL);
        }
}

TEST(the_rule_for_any_address_is_not_pushed_out) {
        static const char *const rules[] = { "a.example in 8.0.0.0/8 tcp:1", "a.example in 8.8.0.0/12 tcp:2", "a.example in 8.8.0.0/16 tcp:3",
                                             "a.example in 8.8.8.0/24 tcp:4", "a.example udp", NULL };
        _cleanup_(name_table_freep) NameTable *t = table(POLICY_DEFAULT_DENY, rules);
        NetRule r[NET_NAME_RULES];

        assert_eq(opens(t, "a.example", "8.8.8.8", r), NET_NAME_RULES);
        assert_eq(r[0].flags, NET_RULE_UDP);
        assert_eq(r[1].flags, NET_RULE_TCP_PORTS);
}

TEST(no_more_rules_than_there_is_room_for) {
        static const char *const rules[] = { "a.b.example in 10.0.0.0/8 tcp:1", "a.b.example in 10.0.0.0/12 tcp:2",
                                             "a.b.example in 10.0.0.0/16 tcp:3", "*.b.example in 10.0.0.0/20 tcp:4",
                                             "*.example in 10.0.0.0/24 tcp:5", "*.example in 10.0.0.0/28 tcp:6", NULL };
        _cleanup_(name_table_freep) NameTable *t = table(POLICY_DEFAULT_DENY, rules);
        NetRule r[NET_NAME_RULES];

        assert_eq(opens(t, "a.b.example", "10.0.0.1", r), NET_NAME_RULES);
}

TEST(too_many_names) {
        _cleanup_(name_table_freep) NameTable *t = NULL;
        char name[] = "x.example";
        PolicyName n = { .name = name };

        assert_ok(name_table_new(false, &t));
        for (unsigned i = 0; i < POLICY_RULES_MAX; i++)
                assert_ok(name_table_add(t, &n));
        assert_eq(name_table_add(t, &n), -E2BIG);
        name_table_seal(t);
        assert_true(name_table_allows(t, name));
}
