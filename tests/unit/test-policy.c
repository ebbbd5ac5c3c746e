/* SPDX-License-Identifier: Apache-2.0 */

/* Rules as people write them, and what the compiler makes of them. */

#include <netinet/in.h>

#include "net/policy.h"
#include "tests/unit/policy-model.h"
#include "tests/unit/test.h"

static char message[POLICY_ERROR_MAX];

static int add(PolicyList list, const char *text) {
        _cleanup_(policy_freep) Policy *p = NULL;

        assert_ok(policy_new(POLICY_DEFAULT_DENY, &p));
        *message = 0;
        return policy_add(p, list, text, message);
}

static PolicyTable *compile(PolicyDefault def, const char *const *allow, const char *const *deny) {
        _cleanup_(policy_freep) Policy *p = NULL;
        PolicyTable *t;

        assert_ok(policy_new(def, &p));
        for (; allow && *allow; allow++)
                assert_ok(policy_add(p, POLICY_ALLOW, *allow, message));
        for (; deny && *deny; deny++)
                assert_ok(policy_add(p, POLICY_DENY, *deny, message));
        assert_ok(policy_compile(p, NULL, 0, &t, message));
        return t;
}

static bool allows(const PolicyTable *t, const char *address, uint8_t proto, unsigned port) {
        ModelPacket p = { .proto = proto, .port = port };

        assert_ok(prefix_parse(address, &p.remote));
        return model_table_allows(t, &p);
}

TEST(rules_that_can_be_read) {
        static const char *const good[] = {
                "8.8.8.8", "8.8.8.0/24", "10.0.0.1/8", "all", "all tcp:443", "2001:db8::/32 icmp", "::ffff:8.8.8.8", "1.2.3.4 any:53",
                "example.com", "example.com.", "*.EXAMPLE.com tcp:443,8000-8999", "db.example.com in 10.0.0.0/8 tcp:5432",
                "192.0.2.7 tcp:5432 host", "192.0.2.7 host", "xn--bcher-kva.example", "_srv.example", "  8.8.8.8\tudp:53 ",
                "1.1.1.1 tcp:0-65535",
        };
        for (size_t i = 0; i < ELEMENTSOF(good); i++)
                if (add(POLICY_ALLOW, good[i]) < 0)
                        test_stop(TEST_FAILED, __LINE__, "%s", message);
}

TEST(rules_that_cant_say_why) {
        static const char *const bad[][2] = {
                { "", "is empty" },
                { "8.8.8.8/33", "no address" },
                { "8.8.8", "no address" },
                { "8.8.8.8/", "no address" },
                { "8.8.8.8/-1", "no address" },
                { "2001:db8::/129", "no address" },
                { "2001:zz::", "no address" },
                { "8.8.8.8 tcp:70000", "0 to 65535" },
                { "8.8.8.8 tcp:90-80", "FIRST-LAST" },
                { "8.8.8.8 tcp:", "no ports" },
                { "8.8.8.8 tcp:x", "0 to 65535" },
                { "8.8.8.8 icmp:8", "no ports" },
                { "8.8.8.8 sctp", "tcp, udp, icmp or any" },
                { "8.8.8.8 tcp:80 udp:53", "more in it" },
                { "8.8.8.0/24 host", "one address" },
                { "example.com host", "one address" },
                { "all host", "one address" },
                { "8.8.8.8 in 10.0.0.0/8", "goes with a name" },
                { "example.com in", "followed by" },
                { "a..example", "empty label" },
                { ".example", "empty label" },
                { "*", "only be the whole first label" },
                { "a.*.example", "only be the whole first label" },
                { "*x.example", "only be the whole first label" },
                { "b\xc3\xbc" "cher.example", "xn--" },
                { "exa mple.com", "tcp, udp, icmp or any" },
                { "exa$mple.com", "letters, digits" },
                { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example", "63 characters" },
        };
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                assert_eq(add(POLICY_ALLOW, bad[i][0]), -EINVAL);
                if (!strstr(message, bad[i][1]) || !strstr(message, bad[i][0]))
                        test_stop(TEST_FAILED, __LINE__, "\"%s\" gave: %s", bad[i][0], message);
        }
        assert_eq(add(POLICY_DENY, "example.com"), -EINVAL);
        assert_true(strstr(message, "names can only be allowed"));
        assert_eq(add(POLICY_DENY, "8.8.8.8 host"), -EINVAL);
}

TEST(a_list_that_is_too_long_is_refused) {
        _cleanup_(policy_freep) Policy *p = NULL;
        int r = 0;

        assert_ok(policy_new(POLICY_DEFAULT_DENY, &p));
        for (unsigned i = 0; i < POLICY_RULES_MAX && r >= 0; i++)
                r = policy_add(p, POLICY_ALLOW, "8.8.8.8", message);
        assert_eq(r, -E2BIG);
        assert_true(strstr(message, "4095 rules"));
}

TEST(allow_wins_over_deny_whatever_the_length) {
        const char *const allow[] = { "8.0.0.0/8", NULL }, *const deny[] = { "8.8.8.8/32", "9.0.0.0/8", NULL };
        _cleanup_(policy_table_freep) PolicyTable *t = compile(POLICY_DEFAULT_INTERNET, allow, deny);

        assert_true(allows(t, "8.8.8.8", IPPROTO_TCP, 80));
        assert_true(!allows(t, "9.9.9.9", IPPROTO_TCP, 80));
        assert_true(allows(t, "7.7.7.7", IPPROTO_TCP, 80));
}

TEST(special_ranges_open_only_from_inside) {
        const char *const wide[] = { "0.0.0.0/0", "::/0", NULL }, *const narrow[] = { "10.1.0.0/16 tcp:443", NULL };
        _cleanup_(policy_table_freep) PolicyTable *w = compile(POLICY_DEFAULT_INTERNET, wide, NULL);
        _cleanup_(policy_table_freep) PolicyTable *n = compile(POLICY_DEFAULT_DENY, narrow, NULL);

        static const char *const special[] = {
                "0.1.2.3", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.31.0.1", "192.0.0.1", "192.168.1.1",
                "198.19.0.1", "224.0.0.1", "255.255.255.255", "::1", "fd00::1", "fe80::1", "ff02::1", "::ffff:10.1.2.3",
                "64:ff9b::10.1.2.3", "2002:a01:203::1", "::",
        };
        for (size_t i = 0; i < ELEMENTSOF(special); i++)
                if (allows(w, special[i], IPPROTO_TCP, 443))
                        test_stop(TEST_FAILED, __LINE__, "%s is open", special[i]);
        assert_true(allows(w, "11.0.0.1", IPPROTO_TCP, 443));
        assert_true(allows(w, "64:ff9b::8.8.8.8", IPPROTO_TCP, 443));
        assert_true(allows(n, "10.1.2.3", IPPROTO_TCP, 443));
        assert_true(!allows(n, "10.1.2.3", IPPROTO_TCP, 80));
        assert_true(!allows(n, "10.2.2.3", IPPROTO_TCP, 443));
        assert_true(!allows(n, "64:ff9b::10.1.2.3", IPPROTO_TCP, 443));
}

TEST(who_denies_all_of_ipv4_denies_ipv6_too) {
        const char *const allow[] = { "8.8.8.8", NULL }, *const deny[] = { "0.0.0.0/0", NULL };
        _cleanup_(policy_table_freep) PolicyTable *t = compile(POLICY_DEFAULT_INTERNET, allow, deny);

        assert_true(allows(t, "8.8.8.8", IPPROTO_UDP, 53));
        assert_true(!allows(t, "1.1.1.1", IPPROTO_UDP, 53));
        assert_true(!allows(t, "2001:db8::1", IPPROTO_UDP, 53));
        assert_true(!t->dns);
}

TEST(resolving_follows_names_and_the_default) {
        const char *const names[] = { "example.com", NULL };
        _cleanup_(policy_table_freep) PolicyTable *deny = compile(POLICY_DEFAULT_DENY, NULL, NULL);
        _cleanup_(policy_table_freep) PolicyTable *internet = compile(POLICY_DEFAULT_INTERNET, NULL, NULL);
        _cleanup_(policy_table_freep) PolicyTable *named = compile(POLICY_DEFAULT_DENY, names, NULL);

        assert_true(!deny->dns);
        assert_true(internet->dns);
        assert_true(named->dns);
        assert_eq(named->n_names, 1);
        assert_streq(named->names[0].name, "example.com");
}

TEST(names_keep_their_ports_and_ranges) {
        const char *const names[] = { "*.A.example. tcp:443", "db.example in 10.0.0.0/8", NULL };
        _cleanup_(policy_table_freep) PolicyTable *t = compile(POLICY_DEFAULT_DENY, names, NULL);

        assert_eq(t->n_names, 2);
        assert_streq(t->names[0].name, "a.example");
        assert_true(t->names[0].below);
        assert_eq(t->names[0].rule.flags, NET_RULE_TCP_PORTS);
        assert_eq(t->sets[t->names[0].rule.set].tcp[0].first, 443);
        assert_true(t->names[1].has_inside && t->names[1].inside.len == 8);
        assert_eq(t->names[1].rule.flags, NET_RULE_ALL);
}

TEST(more_ranges_of_ports_than_the_filter_has_room_for) {
        _cleanup_(policy_freep) Policy *p = NULL;
        _cleanup_(policy_table_freep) PolicyTable *t = NULL;
        char text[60];

        assert_ok(policy_new(POLICY_DEFAULT_DENY, &p));
        for (unsigned i = 0; i <= NET_PORT_RANGES_MAX; i++) {
                (void) snprintf(text, sizeof(text), "8.8.8.8 tcp:%u", 2 * i);
                assert_ok(policy_add(p, POLICY_ALLOW, text, message));
        }
        assert_eq(policy_compile(p, NULL, 0, &t, message), -E2BIG);
        assert_true(strstr(message, "8.8.8.8/32"));
}

TEST(the_hosts_own_special_prefixes_count) {
        _cleanup_(policy_freep) Policy *p = NULL;
        _cleanup_(policy_table_freep) PolicyTable *t = NULL;
        Prefix extra;

        assert_ok(prefix_parse("203.0.113.0/24", &extra));
        assert_ok(policy_new(POLICY_DEFAULT_INTERNET, &p));
        assert_true(!policy_opens_special(p, &extra, 1));
        assert_ok(policy_add(p, POLICY_ALLOW, "203.0.113.5 tcp:80", message));
        assert_true(policy_opens_special(p, &extra, 1));
        assert_true(!policy_opens_special(p, NULL, 0));
        assert_ok(policy_compile(p, &extra, 1, &t, message));
        assert_true(allows(t, "203.0.113.5", IPPROTO_TCP, 80));
        assert_true(!allows(t, "203.0.113.6", IPPROTO_TCP, 80));
        assert_true(allows(t, "203.0.114.6", IPPROTO_TCP, 80));
}

TEST(what_only_an_admin_may_allow_is_told) {
        static const struct { const char *rule; bool special; } cases[] = {
                { "8.8.8.8", false }, { "0.0.0.0/0", false }, { "10.0.0.0/8", true }, { "8.8.8.8 host", true },
                { "a.example", false }, { "a.example in 10.0.0.0/8", true }, { "fd00::1", true },
        };
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_(policy_freep) Policy *p = NULL;
                assert_ok(policy_new(POLICY_DEFAULT_DENY, &p));
                assert_ok(policy_add(p, POLICY_ALLOW, cases[i].rule, message));
                assert_eq(policy_opens_special(p, NULL, 0), cases[i].special);
        }
}

TEST(equal_policies_are_equal_tables) {
        const char *const one[] = { "8.8.8.8", "9.9.9.9 tcp:80", NULL }, *const same[] = { "9.9.9.9 tcp:80", "8.8.8.8/32", NULL },
                   *const other[] = { "8.8.8.8", "9.9.9.9 tcp:81", NULL };
        _cleanup_(policy_table_freep) PolicyTable *a = compile(POLICY_DEFAULT_DENY, one, NULL);
        _cleanup_(policy_table_freep) PolicyTable *b = compile(POLICY_DEFAULT_DENY, same, NULL);
        _cleanup_(policy_table_freep) PolicyTable *c = compile(POLICY_DEFAULT_DENY, other, NULL);

        assert_true(policy_table_equal(a, b));
        assert_true(!policy_table_equal(a, c));
}

TEST(tables_say_what_the_rules_say) {
        unsigned seed = 1, allowed = 0, denied = 0;

        for (unsigned i = 0; i < 400; i++) {
                _cleanup_(policy_freep) Policy *p = NULL;
                _cleanup_(policy_table_freep) PolicyTable *t = NULL;
                Model m;

                model_random(&m, &seed);
                assert_ok(model_policy(&m, &p));
                assert_ok(policy_compile(p, NULL, 0, &t, message));
                for (unsigned k = 0; k < 100; k++) {
                        ModelPacket packet;
                        char text[PREFIX_TEXT_MAX];

                        model_packet(&m, &seed, &packet);
                        bool expected = model_allows(&m, &packet);
                        if (model_table_allows(t, &packet) != expected)
                                test_stop(TEST_FAILED, __LINE__, "policy %u: %s proto %u port %u inbound %d should be %d", i,
                                          prefix_format(text, &packet.remote), packet.proto, packet.port, packet.inbound, expected);
                        expected ? allowed++ : denied++;
                }
        }
        assert_true(allowed > 5000 && denied > 5000);
}
