/* SPDX-License-Identifier: Apache-2.0 */

/* Queries as guests write them, and answers as upstream may give them. */

#include <fcntl.h>

#include "base/fd-util.h"
#include "net/dns-message.h"
#include "net/name-servers.h"
#include "tests/unit/test.h"

static const Prefix net4 = { .tag = NET_TAG4, .len = 16, .addr = { 8, 77 } }, net6 = {};

static void query_done(DnsQuery *q) {
        dns_query_done(q);
}

static int ask(const char *name, uint16_t type, DnsQuery *ret) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *p = NULL;
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;

        assert_eq(ldns_pkt_query_new_frm_str(&p, name, type, LDNS_RR_CLASS_IN, LDNS_RD), LDNS_STATUS_OK);
        ldns_pkt_set_id(p, 0x1234);
        assert_eq(ldns_pkt2wire(&data, p, &size), LDNS_STATUS_OK);
        return dns_query_parse(data, size, ret);
}

/* What upstream says: lines of a zone. */
static ldns_pkt *upstream(const DnsQuery *q, const char *const *records) {
        ldns_pkt *p;

        assert_ok(dns_answer_new(q, LDNS_RCODE_NOERROR, &p));
        for (; *records; records++) {
                ldns_rr *rr;
                assert_eq(ldns_rr_new_frm_str(&rr, *records, 300, NULL, NULL), LDNS_STATUS_OK);
                assert_true(ldns_pkt_push_rr(p, LDNS_SECTION_ANSWER, rr));
        }
        return p;
}

static NameTable *names(bool all, const char *name, bool below, const char *inside) {
        _cleanup_free_ char *copy = strdup(name);
        PolicyName n = { .name = copy, .below = below, .rule = { .flags = NET_RULE_ALL } };
        NameTable *t;

        if (inside) {
                assert_ok(prefix_parse(inside, &n.inside));
                n.has_inside = true;
                n.special = prefix_is_special(&n.inside);
        }
        assert_ok(name_table_new(all, &t));
        assert_ok(name_table_add(t, &n));
        name_table_seal(t);
        return t;
}

static ldns_pkt *judge(const DnsQuery *q, const NameTable *t, const char *const *records, DnsOpened *opened) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *from = upstream(q, records);
        DnsView view = { .names = t, .net4 = &net4, .net6 = &net6, .ttl_max = 3600 };
        ldns_pkt *answer;

        assert_ok(dns_answer_judge(q, from, &view, opened, &answer));
        return answer;
}

TEST(a_query_is_read) {
        _cleanup_(query_done) DnsQuery q = {};

        assert_eq(ask("WwW.Example.COM.", LDNS_RR_TYPE_AAAA, &q), 0);
        assert_streq(q.name, "www.example.com");
        assert_true(q.plain && q.rd && !q.edns);
        assert_eq(q.type, LDNS_RR_TYPE_AAAA);
        assert_eq(q.id, 0x1234);
        assert_eq(q.udp_size, 512);
}

TEST(odd_names_are_told_apart) {
        static const struct { const char *text, *name; bool plain; } cases[] = {
                { "a\\.b.example.", "a\\046b.example", false },
                { "a\\032b.example.", "a\\032b.example", false },
                { "a\\000.example.", "a\\000.example", false },
                { "_srv-1.example.", "_srv-1.example", true },
                { ".", "", false },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_(query_done) DnsQuery q = {};
                assert_eq(ask(cases[i].text, LDNS_RR_TYPE_A, &q), 0);
                assert_streq(q.name, cases[i].name);
                assert_eq(q.plain, cases[i].plain);
        }
}

TEST(a_name_that_is_too_long_when_written_out_is_not_plain) {
        char text[4 * 255 + 1] = "";
        _cleanup_(query_done) DnsQuery q = {};

        for (unsigned label = 0; label < 4; label++) {
                for (unsigned i = 0; i < 60; i++)
                        strcat(text, "\\001");
                strcat(text, ".");
        }
        assert_eq(ask(text, LDNS_RR_TYPE_A, &q), 0);
        assert_true(!q.plain && strlen(q.name) < sizeof(q.name));
}

TEST(what_is_no_query) {
        static const uint8_t good[] = { 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 0, 0, 1, 0, 1 };
        static const struct { size_t size, at; uint8_t value; int result; } cases[] = {
                { sizeof(good), 0, 0, 0 },
                { 11, 0, 0, -EBADMSG },
                { sizeof(good), 2, 0x81, -EBADMSG },         /* an answer */
                { sizeof(good), 2, 0x29, LDNS_RCODE_NOTIMPL }, /* an update */
                { sizeof(good), 5, 0, LDNS_RCODE_FORMERR },
                { sizeof(good), 5, 2, LDNS_RCODE_FORMERR },
                { sizeof(good) - 1, 0, 0, LDNS_RCODE_FORMERR },
                { sizeof(good), 12, 0xc0, LDNS_RCODE_FORMERR }, /* a pointer */
                { sizeof(good), 18, 3, LDNS_RCODE_REFUSED },  /* another class */
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_(query_done) DnsQuery q = {};
                uint8_t data[sizeof(good)];
                memcpy(data, good, sizeof(good));
                data[cases[i].at] = cases[i].value;
                assert_eq(dns_query_parse(data, cases[i].size, &q), cases[i].result);
        }
}

TEST(types) {
        assert_eq(dns_type_of(LDNS_RR_TYPE_A), DNS_TYPE_NAMED);
        assert_eq(dns_type_of(LDNS_RR_TYPE_TXT), DNS_TYPE_NAMED);
        assert_eq(dns_type_of(LDNS_RR_TYPE_HTTPS), DNS_TYPE_OPEN);
        assert_eq(dns_type_of(LDNS_RR_TYPE_SVCB), DNS_TYPE_OPEN);
        assert_eq(dns_type_of(LDNS_RR_TYPE_ANY), DNS_TYPE_REFUSED);
        assert_eq(dns_type_of(LDNS_RR_TYPE_AXFR), DNS_TYPE_REFUSED);
        assert_eq(dns_type_of(0), DNS_TYPE_REFUSED);
}

TEST(a_chain_opens_its_end_for_its_shortest_life) {
        static const char *const records[] = { "www.example. 500 IN CNAME a.test.", "A.test. 40 IN CNAME b.test.",
                                               "b.test. 7200 IN A 8.8.8.8", "b.test. 100 IN A 8.8.4.4", "c.test. 100 IN A 8.8.1.1",
                                               "www.example. 100 IN TXT \"no\"", NULL };
        _cleanup_(name_table_freep) NameTable *t = names(false, "www.example", false, NULL);
        _cleanup_(ldns_pkt_freep) ldns_pkt *answer = NULL;
        _cleanup_(query_done) DnsQuery q = {};
        DnsOpened opened;

        assert_eq(ask("www.example.", LDNS_RR_TYPE_A, &q), 0);
        answer = judge(&q, t, records, &opened);
        assert_eq(opened.n, 2);
        assert_eq(opened.addresses[0].ttl, 40);
        assert_eq(ldns_pkt_ancount(answer), 4);
        /* No record is kept for longer than it is open. */
        for (size_t i = 0; i < ldns_pkt_ancount(answer); i++)
                assert_true(ldns_rr_ttl(ldns_rr_list_rr(ldns_pkt_answer(answer), i)) <= 3600);
}

TEST(special_addresses_are_left_out) {
        static const char *const records[] = { "www.example. 60 IN A 10.1.2.3", "www.example. 60 IN A 8.77.0.9",
                                               "www.example. 60 IN A 8.8.8.8", "www.example. 60 IN A 127.0.0.1", NULL };
        _cleanup_(name_table_freep) NameTable *plain = names(false, "www.example", false, NULL),
                                              *inside = names(false, "www.example", false, "10.1.0.0/16"),
                                              *all = names(true, "other.example", false, NULL);
        _cleanup_(query_done) DnsQuery q = {};
        ldns_pkt *answer;
        DnsOpened opened;

        assert_eq(ask("www.example.", LDNS_RR_TYPE_A, &q), 0);
        answer = judge(&q, plain, records, &opened);
        assert_eq(ldns_pkt_ancount(answer), 1);
        assert_eq(opened.n, 1);
        assert_eq(opened.addresses[0].prefix.addr[0], 8);
        assert_true(opened.withheld && opened.withheld_first.addr[0] == 10);
        ldns_pkt_free(answer);

        answer = judge(&q, inside, records, &opened);
        assert_eq(ldns_pkt_ancount(answer), 1);
        assert_eq(opened.addresses[0].prefix.addr[0], 10);
        assert_eq(opened.addresses[0].rules[0].flags, NET_RULE_ALL|NET_RULE_SPECIAL);
        ldns_pkt_free(answer);

        /* Where all names may be asked for nothing is hidden; the filter is what denies. */
        answer = judge(&q, all, records, &opened);
        assert_eq(ldns_pkt_ancount(answer), 4);
        assert_eq(opened.n, 0);
        ldns_pkt_free(answer);
}

/* What is left of it ends with a name of the policy, though it lies below evil.example. */
TEST(a_name_that_was_cut_opens_nothing) {
        static const char *const records[] = { "www.example. 60 IN A 10.1.2.3", NULL };
        _cleanup_(name_table_freep) NameTable *t = names(true, "db.internal", true, "10.0.0.0/8");
        _cleanup_(ldns_pkt_freep) ldns_pkt *answer = NULL;
        _cleanup_(query_done) DnsQuery q = {};
        char text[4 * 255 + 1] = "abc";
        DnsOpened opened;

        for (unsigned i = 0; i < 60; i++)
                strcat(text, "\\001");
        strcat(text, ".db.internal.evil.example.");
        assert_eq(ask(text, LDNS_RR_TYPE_A, &q), 0);
        assert_streq(q.name + strlen(q.name) - strlen(".db.internal"), ".db.internal");
        answer = judge(&q, t, records, &opened);
        assert_eq(ldns_pkt_ancount(answer), 1);
        assert_eq(opened.n, 0);
}

TEST(an_answer_that_is_too_long_is_truncated) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *answer = NULL, *back = NULL;
        _cleanup_(query_done) DnsQuery q = {};
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;

        assert_eq(ask("www.example.", LDNS_RR_TYPE_A, &q), 0);
        assert_ok(dns_answer_new(&q, LDNS_RCODE_NOERROR, &answer));
        for (unsigned i = 0; i < 60; i++) {
                ldns_rr *rr;
                assert_eq(ldns_rr_new_frm_str(&rr, "www.example. 60 IN A 8.8.8.8", 60, NULL, NULL), LDNS_STATUS_OK);
                assert_true(ldns_pkt_push_rr(answer, LDNS_SECTION_ANSWER, rr));
        }
        assert_ok(dns_answer_write(&q, answer, 512, &data, &size));
        assert_true(size <= 512);
        assert_eq(ldns_wire2pkt(&back, data, size), LDNS_STATUS_OK);
        assert_true(ldns_pkt_tc(back));
        assert_eq(ldns_pkt_ancount(back), 0);
        free(data);
        assert_ok(dns_answer_write(&q, answer, UINT16_MAX, &data, &size));
        assert_true(size > 512);
}

TEST(upstream_hears_name_and_type_only) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *back = NULL;
        _cleanup_(query_done) DnsQuery q = {};
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;

        assert_eq(ask("WWW.exAMple.", LDNS_RR_TYPE_A, &q), 0);
        assert_ok(dns_upstream_query(&q, 0xabcd, &data, &size));
        assert_eq(ldns_wire2pkt(&back, data, size), LDNS_STATUS_OK);
        assert_eq(ldns_pkt_id(back), 0xabcd);
        assert_eq(memcmp(ldns_rdf_data(ldns_rr_owner(ldns_rr_list_rr(ldns_pkt_question(back), 0))), "\3www\7example", 13), 0);
        assert_true(ldns_pkt_rd(back) && !ldns_pkt_cd(back));
}

TEST(only_the_answer_to_the_question_counts) {
        static const char *const none[] = { NULL };
        _cleanup_(query_done) DnsQuery q = {}, other = {};
        _cleanup_free_ uint8_t *data = NULL, *wrong = NULL;
        ldns_pkt *p, *from;
        size_t size, wrong_size;

        assert_eq(ask("WWW.example.", LDNS_RR_TYPE_A, &q), 0);
        assert_eq(ask("evil.example.", LDNS_RR_TYPE_A, &other), 0);
        from = upstream(&q, none);
        assert_ok(dns_answer_write(&q, from, 512, &data, &size));
        ldns_pkt_free(from);
        from = upstream(&other, none);
        assert_ok(dns_answer_write(&other, from, 512, &wrong, &wrong_size));
        ldns_pkt_free(from);
        assert_ok(dns_upstream_parse(&q, 0x1234, data, size, &p));
        ldns_pkt_free(p);
        assert_eq(dns_upstream_parse(&q, 0x1235, data, size, &p), -EBADMSG);
        assert_eq(dns_upstream_parse(&q, 0x1234, wrong, wrong_size, &p), -EBADMSG);
        assert_eq(dns_upstream_parse(&q, 0x1234, data, size - 1, &p), -EBADMSG);
        assert_eq(dns_upstream_parse(&q, 0x1234, data, 11, &p), -EBADMSG);
        data[2] &= 0x7f;
        assert_eq(dns_upstream_parse(&q, 0x1234, data, size, &p), -EBADMSG);
}

static void write_conf(const char *path, const char *text) {
        _cleanup_close_ int fd = open(path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0600);

        assert_ok(fd);
        assert_ok(write_full(fd, text, strlen(text)));
}

TEST(name_servers_of_a_resolv_conf) {
        char path[] = "/tmp/resolv-conf-XXXXXX";
        _cleanup_close_ int fd = mkstemp(path);
        NameServers s = {};

        write_conf(path, "# nameserver 1.1.1.1\nsearch example\nnameserver\t192.0.2.1\r\nnameserver 2001:db8::1\n"
                         "nameserver x\nnameserver fe80::1%lo\noptions rotate\nnameserver 192.0.2.9\n");
        name_servers_refresh(&s, path, 53);
        assert_eq(s.n, 3);
        assert_eq(s.servers[0].in.sin_family, AF_INET);
        assert_eq(s.servers[1].in6.sin6_family, AF_INET6);
        assert_eq(s.servers[2].in6.sin6_scope_id, 1);
        write_conf(path, "nameserver 192.0.2.2\n");
        name_servers_refresh(&s, path, 53);
        assert_eq(s.n, 1);
        assert_ok(unlink(path));
        /* As resolv.conf(5) says. */
        name_servers_refresh(&s, path, 5353);
        assert_eq(s.n, 1);
        assert_eq(s.servers[0].in.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
        assert_eq(ntohs(s.servers[0].in.sin_port), 5353);
}
