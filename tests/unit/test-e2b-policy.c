/* SPDX-License-Identifier: Apache-2.0 */

/* E2B's `network` of a sandbox as a policy of ours: the same destinations are open. tests/bpf/test_e2b.py says the same
 * with packets. The mapping, which docs/ARCHITECTURE.md explains:
 *
 *     denyOut has 0.0.0.0/0, or allow_internet_access is false     default deny, and the rest of denyOut says nothing more
 *     else                                                        default internet
 *     allowOut: an address or CIDR in a special range             left out, since at E2B it opens nothing either
 *     allowOut: any other address, CIDR or name                   allow
 *     denyOut: an address or CIDR                                 deny
 *
 * What E2B refuses, the gateway refuses before it comes to this: a name in denyOut, and one in allowOut without
 * 0.0.0.0/0 in denyOut. */

#include <netinet/in.h>

#include "net/policy.h"
#include "tests/unit/policy-model.h"
#include "tests/unit/test.h"

#define LIST_MAX 5U

typedef struct E2bNetwork {
        const char *allow_out[LIST_MAX];
        const char *deny_out[LIST_MAX];
        bool no_internet;       /* allow_internet_access is false */
} E2bNetwork;

typedef struct Case {
        const char *what;
        E2bNetwork network;
        const char *open[LIST_MAX];
        const char *closed[LIST_MAX];
} Case;

static const Case cases[] = {
        { "nothing said: the internet",
          {},
          { "8.8.8.8", "203.0.113.10", "2606:4700::1111" }, {} },
        { "allow_internet_access: false closes all",
          { .no_internet = true },
          {}, { "8.8.8.8", "203.0.113.10", "2606:4700::1111" } },
        { "so does 0.0.0.0/0 in denyOut, IPv6 included",
          { .deny_out = { "0.0.0.0/0" } },
          {}, { "8.8.8.8", "203.0.113.10", "2606:4700::1111" } },
        { "denyOut closes what it names",
          { .deny_out = { "8.8.8.8", "203.0.113.0/24" } },
          { "8.8.4.4", "203.0.114.1" }, { "8.8.8.8", "203.0.113.10" } },
        { "allowOut alone closes nothing",
          { .allow_out = { "1.1.1.1" } },
          { "1.1.1.1", "8.8.8.8" }, {} },
        { "allowOut with all denied: only that",
          { .allow_out = { "1.1.1.1", "8.8.8.0/24" }, .deny_out = { "0.0.0.0/0" } },
          { "1.1.1.1", "8.8.8.8" }, { "1.1.1.2", "8.8.9.1" } },
        { "the same by allow_internet_access",
          { .allow_out = { "1.1.1.1" }, .no_internet = true },
          { "1.1.1.1" }, { "8.8.8.8" } },
        { "allow wins over deny",
          { .allow_out = { "8.8.8.8" }, .deny_out = { "8.8.8.8" } },
          { "8.8.8.8" }, {} },
        { "allow wins when it is the smaller one",
          { .allow_out = { "8.8.8.8" }, .deny_out = { "8.8.8.0/24" } },
          { "8.8.8.8" }, { "8.8.8.9" } },
        { "allow wins when it is the larger one: a prefix's length decides nothing",
          { .allow_out = { "8.0.0.0/8" }, .deny_out = { "8.8.8.8/32" } },
          { "8.8.8.8", "8.1.1.1" }, {} },
        { "everything else of denyOut is nothing beside 0.0.0.0/0",
          { .allow_out = { "8.8.8.8" }, .deny_out = { "8.8.8.0/24", "0.0.0.0/0", "1.1.1.1" } },
          { "8.8.8.8" }, { "8.8.8.9", "1.1.1.1", "9.9.9.9" } },
        { "the order in a list is nothing",
          { .allow_out = { "1.1.1.1", "8.0.0.0/8" }, .deny_out = { "8.8.8.8", "1.0.0.0/8" } },
          { "8.8.8.8", "1.1.1.1" }, { "1.1.1.2" } },
        { "0.0.0.0/0 in both: allow wins",
          { .allow_out = { "0.0.0.0/0" }, .deny_out = { "0.0.0.0/0" } },
          { "8.8.8.8", "203.0.113.10" }, {} },
        { "two halves are not 0.0.0.0/0, and close IPv4 all the same",
          { .deny_out = { "0.0.0.0/1", "128.0.0.0/1" } },
          { "2606:4700::1111" }, { "8.8.8.8", "203.0.113.10" } },
        { "IPv6",
          { .allow_out = { "2606:4700::1111" }, .deny_out = { "2606:4700::/32" } },
          { "2606:4700::1111", "2001:4860::8888" }, { "2606:4700::1112" } },
        { "names do not open addresses by themselves",
          { .allow_out = { "example.com", "*.example.org" }, .deny_out = { "0.0.0.0/0" } },
          {}, { "8.8.8.8", "203.0.113.10" } },
        { "names beside addresses",
          { .allow_out = { "example.com", "8.8.8.8" }, .deny_out = { "0.0.0.0/0" } },
          { "8.8.8.8" }, { "203.0.113.10" } },
};

/* E2B's ranges that no rule of a user's opens. */
static const char *const always_denied[] = {
        "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
        "::1", "fc00::/7", "fe80::/10",
};

static void add(Policy *p, PolicyList list, const char *text) {
        char message[POLICY_ERROR_MAX] = "";

        if (policy_add(p, list, text, message) < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", message);
}

static bool in_special(const char *text) {
        Prefix p;

        return prefix_parse(text, &p) >= 0 && prefix_is_special(&p);
}

static bool denies_all(const E2bNetwork *n) {
        for (unsigned i = 0; i < LIST_MAX && n->deny_out[i]; i++)
                if (streq(n->deny_out[i], "0.0.0.0/0"))
                        return true;
        return n->no_internet;
}

static PolicyTable *table_of(const E2bNetwork *n) {
        _cleanup_(policy_freep) Policy *p = NULL;
        char message[POLICY_ERROR_MAX] = "";
        bool all = denies_all(n);
        PolicyTable *t;

        assert_ok(policy_new(all ? POLICY_DEFAULT_DENY : POLICY_DEFAULT_INTERNET, &p));
        for (unsigned i = 0; i < LIST_MAX && n->allow_out[i]; i++)
                if (!in_special(n->allow_out[i]))
                        add(p, POLICY_ALLOW, n->allow_out[i]);
        for (unsigned i = 0; i < LIST_MAX && n->deny_out[i] && !all; i++)
                add(p, POLICY_DENY, n->deny_out[i]);
        /* So the gateway needs no right that an admin gives. */
        assert_eq(policy_opens_special(p, NULL, 0), false);
        assert_ok(policy_compile(p, NULL, 0, &t, message));
        return t;
}

static bool opens(const PolicyTable *t, const char *address, uint8_t proto) {
        ModelPacket p = { .proto = proto, .port = 443 };

        assert_ok(prefix_parse(address, &p.remote));
        return model_table_allows(t, &p);
}

static void expect(const Case *c, const PolicyTable *t, const char *address, bool open) {
        static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP };

        for (size_t i = 0; i < ELEMENTSOF(protocols); i++)
                if (opens(t, address, protocols[i]) != open)
                        test_stop(TEST_FAILED, __LINE__, "%s: %s is %s", c->what, address, open ? "closed" : "open");
}

TEST(the_same_destinations_are_open) {
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                const Case *c = &cases[i];
                _cleanup_(policy_table_freep) PolicyTable *t = table_of(&c->network);

                for (unsigned k = 0; k < LIST_MAX && c->open[k]; k++)
                        expect(c, t, c->open[k], true);
                for (unsigned k = 0; k < LIST_MAX && c->closed[k]; k++)
                        expect(c, t, c->closed[k], false);
        }
}

TEST(what_e2b_always_denies_no_rule_opens) {
        for (size_t i = 0; i < ELEMENTSOF(always_denied); i++) {
                const char *range = always_denied[i];
                const E2bNetwork networks[] = {
                        {},
                        { .allow_out = { range } },
                        { .allow_out = { range }, .deny_out = { "0.0.0.0/0" } },
                        { .allow_out = { "0.0.0.0/0", "::/0" } },
                };
                for (size_t k = 0; k < ELEMENTSOF(networks); k++) {
                        _cleanup_(policy_table_freep) PolicyTable *t = table_of(&networks[k]);
                        char address[PREFIX_TEXT_MAX];

                        snprintf(address, sizeof(address), "%.*s", (int) strcspn(range, "/"), range);
                        if (opens(t, address, IPPROTO_TCP))
                                test_stop(TEST_FAILED, __LINE__, "%s is open (%zu)", range, k);
                }
        }
}

TEST(names_resolve_only_where_they_can_be_of_use) {
        static const struct {
                E2bNetwork network;
                bool dns;
        } all[] = {
                { {}, true },
                { { .deny_out = { "8.8.8.8" } }, true },
                { { .deny_out = { "0.0.0.0/0" } }, false },
                { { .no_internet = true }, false },
                { { .allow_out = { "8.8.8.8" }, .deny_out = { "0.0.0.0/0" } }, false },
                { { .allow_out = { "example.com" }, .deny_out = { "0.0.0.0/0" } }, true },
        };
        for (size_t i = 0; i < ELEMENTSOF(all); i++) {
                _cleanup_(policy_table_freep) PolicyTable *t = table_of(&all[i].network);
                assert_eq(t->dns, all[i].dns);
        }
}

TEST(a_name_is_itself_and_a_wildcard_what_is_below) {
        const E2bNetwork n = { .allow_out = { "example.com", "*.example.org" }, .deny_out = { "0.0.0.0/0" } };
        _cleanup_(policy_table_freep) PolicyTable *t = table_of(&n);

        assert_eq(t->n_names, 2u);
        for (size_t i = 0; i < t->n_names; i++)
                assert_eq(t->names[i].below, streq(t->names[i].name, "example.org"));
}

TEST(a_name_in_deny_out_is_no_rule) {
        _cleanup_(policy_freep) Policy *p = NULL;
        char message[POLICY_ERROR_MAX] = "";

        assert_ok(policy_new(POLICY_DEFAULT_INTERNET, &p));
        assert_eq(policy_add(p, POLICY_DENY, "example.com", message), -EINVAL);
}
