/* SPDX-License-Identifier: Apache-2.0 */

/* A guest's query, and what came from upstream in answer to it. Whatever both are, the answer is one that can be read and
 * fits, and it opens nothing that its policy does not. */

#include "fuzz.h"
#include "net/dns-message.h"

static const Prefix net4 = { .tag = NET_TAG4, .len = 16, .addr = { 10, 209 } }, net6 = {};

static NameTable *names(unsigned which) {
        static const struct { const char *name, *inside; bool below; } rules[] = {
                { "web.example", NULL, false }, { "web.example", NULL, true }, { "db.example", "10.1.0.0/16", false },
                { "example", "fd00::/8", true },
        };
        NameTable *t;

        FUZZ_CHECK(name_table_new(which & 1, &t) == 0);
        for (size_t i = 0; i < ELEMENTSOF(rules); i++) {
                PolicyName n = { .name = (char *) rules[i].name, .below = rules[i].below, .rule = { .flags = NET_RULE_ALL } };
                if (rules[i].inside) {
                        FUZZ_CHECK(prefix_parse(rules[i].inside, &n.inside) == 0);
                        n.has_inside = n.special = true;
                }
                FUZZ_CHECK(name_table_add(t, &n) == 0);
        }
        name_table_seal(t);
        return t;
}

static void check_opened(const DnsQuery *q, const NameTable *t, const DnsOpened *opened, const ldns_pkt *answer) {
        FUZZ_CHECK(opened->n <= DNS_ADDRESSES_MAX);
        for (size_t i = 0; i < opened->n; i++) {
                const DnsAddress *a = &opened->addresses[i];
                bool special = prefix_is_special(&a->prefix) || prefix_covers(&net4, &a->prefix);
                FUZZ_CHECK(a->n_rules > 0 && a->n_rules <= NET_NAME_RULES && a->ttl <= 3600);
                FUZZ_CHECK(name_table_allows(t, q->name));
                for (size_t k = 0; k < a->n_rules; k++)
                        FUZZ_CHECK(special == !!(a->rules[k].flags & NET_RULE_SPECIAL));
        }
        if (name_table_all(t))
                return;
        FUZZ_CHECK(ldns_pkt_arcount(answer) == 0);
        for (size_t i = 0; i < ldns_pkt_ancount(answer); i++)
                FUZZ_CHECK(ldns_rr_ttl(ldns_rr_list_rr(ldns_pkt_answer(answer), i)) <= 3600);
}

static void check_written(const DnsQuery *q, const ldns_pkt *answer, size_t max) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *back = NULL;
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;

        if (dns_answer_write(q, answer, max, &data, &size) < 0)
                return;
        FUZZ_CHECK(size <= max || max < DNS_UDP_MIN);
        FUZZ_CHECK(ldns_wire2pkt(&back, data, size) == LDNS_STATUS_OK);
        FUZZ_CHECK(ldns_pkt_id(back) == q->id && ldns_pkt_qr(back));
}

static void judge(const DnsQuery *q, const NameTable *t, const uint8_t *data, size_t size) {
        DnsView view = { .names = t, .net4 = &net4, .net6 = &net6, .ttl_max = 3600 };
        _cleanup_(ldns_pkt_freep) ldns_pkt *from = NULL, *answer = NULL;
        DnsOpened opened;

        if (size < 2 || dns_upstream_parse(q, (uint16_t) (data[0] << 8 | data[1]), data, size, &from) < 0)
                return;
        if (dns_answer_judge(q, from, &view, &opened, &answer) < 0)
                return;
        check_opened(q, t, &opened, answer);
        check_written(q, answer, q->udp_size);
        check_written(q, answer, UINT16_MAX);
}

/* One byte for the policy, two for the size of the query. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        FuzzInput in = { data, size };
        NameTable *t = names(fuzz_u8(&in));
        size_t n = MIN(fuzz_u16(&in), in.left), wire_size;
        _cleanup_(ldns_pkt_freep) ldns_pkt *plain = NULL;
        uint8_t *wire;
        DnsQuery q;

        int r = dns_query_parse(in.data, n, &q);
        FUZZ_CHECK(strlen(q.name) < sizeof(q.name));
        if (r >= 0 && dns_answer_new(&q, (uint8_t) r, &plain) >= 0)
                check_written(&q, plain, DNS_UDP_MIN);
        /* As the resolver does: only what may be asked is asked. */
        if (r == 0 && dns_type_of(q.type) != DNS_TYPE_REFUSED &&
            (name_table_all(t) || (q.plain && name_table_allows(t, q.name) && dns_type_of(q.type) == DNS_TYPE_NAMED))) {
                FUZZ_CHECK(dns_upstream_query(&q, 1, &wire, &wire_size) == 0 && wire_size <= DNS_QUERY_MAX);
                free(wire);
                judge(&q, t, in.data + n, in.left - n);
        }
        dns_query_done(&q);
        name_table_free(t);
        return 0;
}
