/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>

#include "net/dns-message.h"

#define HEADER_BYTES 12U
#define CHAIN_MAX 16U
#define RECORDS_MAX 512U

static const uint16_t named_types[] = {
        LDNS_RR_TYPE_A, LDNS_RR_TYPE_AAAA, LDNS_RR_TYPE_CNAME, LDNS_RR_TYPE_MX, LDNS_RR_TYPE_TXT, LDNS_RR_TYPE_SRV,
        LDNS_RR_TYPE_CAA, LDNS_RR_TYPE_NS, LDNS_RR_TYPE_SOA, LDNS_RR_TYPE_PTR,
};

/* Letters in lower case: their case is the guest's, and would carry bits of its choice. False when it does not fit. */
static bool format_label(const uint8_t *label, size_t n, char *ret, size_t size, bool *plain) {
        size_t used = 0;

        for (size_t i = 0; i < n; i++) {
                bool odd = !isalnum(label[i]) && label[i] != '-' && label[i] != '_';
                if (used + (odd ? 4 : 1) >= size)
                        return false;
                *plain &= !odd;
                if (odd)
                        used += (size_t) snprintf(ret + used, size - used, "\\%03u", label[i]);
                else
                        ret[used++] = (char) tolower(label[i]);
        }
        ret[used] = 0;
        return true;
}

static void format_name(const ldns_rdf *owner, DnsQuery *q) {
        const uint8_t *data = ldns_rdf_data(owner);
        size_t size = ldns_rdf_size(owner), used = 0;

        q->plain = true;
        for (size_t at = 0; at < size && data[at] != 0; at += 1U + data[at]) {
                if (used > 0 && used + 1 < sizeof(q->name))
                        q->name[used++] = '.';
                if (at + 1U + data[at] > size ||
                    !format_label(data + at + 1, data[at], q->name + used, sizeof(q->name) - used, &q->plain)) {
                        q->plain = false;
                        break;
                }
                used += strlen(q->name + used);
        }
        q->name[used] = 0;
        /* The root. */
        q->plain &= used > 0;
}

static int read_question(const ldns_pkt *p, DnsQuery *q) {
        const ldns_rr *rr;

        if (ldns_pkt_get_opcode(p) != LDNS_PACKET_QUERY)
                return LDNS_RCODE_NOTIMPL;
        if (ldns_pkt_qdcount(p) != 1 || ldns_pkt_ancount(p) != 0 || ldns_pkt_nscount(p) != 0)
                return LDNS_RCODE_FORMERR;
        rr = ldns_rr_list_rr(ldns_pkt_question(p), 0);
        if (!rr || !ldns_rr_owner(rr))
                return LDNS_RCODE_FORMERR;
        q->question = ldns_rr_clone(rr);
        if (!q->question)
                return -ENOMEM;
        ldns_rr_set_question(q->question, true);
        q->type = (uint16_t) ldns_rr_get_type(rr);
        format_name(ldns_rr_owner(rr), q);
        return ldns_rr_get_class(rr) == LDNS_RR_CLASS_IN ? 0 : LDNS_RCODE_REFUSED;
}

int dns_query_parse(const uint8_t *data, size_t size, DnsQuery *ret) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *p = NULL;

        *ret = (DnsQuery) { .udp_size = DNS_UDP_MIN };
        /* An answer is never answered. */
        if (size < HEADER_BYTES || size > DNS_QUERY_MAX || data[2] & 0x80)
                return -EBADMSG;
        ret->id = (uint16_t) (data[0] << 8 | data[1]);
        if (ldns_wire2pkt(&p, data, size) != LDNS_STATUS_OK)
                return LDNS_RCODE_FORMERR;
        ret->rd = ldns_pkt_rd(p);
        ret->cd = ldns_pkt_cd(p);
        ret->edns = ldns_pkt_edns(p);
        ret->want_dnssec = ret->edns && ldns_pkt_edns_do(p);
        if (ret->edns)
                ret->udp_size = (uint16_t) MIN(MAX(ldns_pkt_edns_udp_size(p), DNS_UDP_MIN), DNS_UDP_MAX);
        return read_question(p, ret);
}

void dns_query_done(DnsQuery *q) {
        ldns_rr_free(q->question);
        q->question = NULL;
}

DnsType dns_type_of(uint16_t type) {
        if (type == 0 || type == LDNS_RR_TYPE_OPT || (type >= 128 && type <= 255))
                return DNS_TYPE_REFUSED;
        for (size_t i = 0; i < ELEMENTSOF(named_types); i++)
                if (type == named_types[i])
                        return DNS_TYPE_NAMED;
        return DNS_TYPE_OPEN;
}

static int push(ldns_pkt *p, ldns_pkt_section section, const ldns_rr *rr, uint32_t ttl_max) {
        ldns_rr *copy = ldns_rr_clone(rr);

        if (!copy)
                return -ENOMEM;
        if (section != LDNS_SECTION_QUESTION && ldns_rr_ttl(copy) > ttl_max)
                ldns_rr_set_ttl(copy, ttl_max);
        if (!ldns_pkt_push_rr(p, section, copy)) {
                ldns_rr_free(copy);
                return -ENOMEM;
        }
        return 0;
}

int dns_answer_new(const DnsQuery *q, uint8_t rcode, ldns_pkt **ret) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *p = ldns_pkt_new();

        if (!p)
                return -ENOMEM;
        ldns_pkt_set_id(p, q->id);
        ldns_pkt_set_qr(p, true);
        ldns_pkt_set_ra(p, true);
        ldns_pkt_set_rd(p, q->rd);
        ldns_pkt_set_cd(p, q->cd);
        ldns_pkt_set_rcode(p, rcode);
        if (q->edns) {
                ldns_pkt_set_edns_udp_size(p, DNS_UDP_MAX);
                ldns_pkt_set_edns_do(p, q->want_dnssec);
        }
        int r = q->question ? push(p, LDNS_SECTION_QUESTION, q->question, UINT32_MAX) : 0;
        if (r < 0)
                return r;
        *ret = TAKE_PTR(p);
        return 0;
}

static bool address_of(const ldns_rr *rr, Prefix *ret) {
        const ldns_rdf *rdf = ldns_rr_rd_count(rr) == 1 ? ldns_rr_rdf(rr, 0) : NULL;
        bool four = ldns_rr_get_type(rr) == LDNS_RR_TYPE_A;
        size_t size = four ? 4 : 16;

        if ((!four && ldns_rr_get_type(rr) != LDNS_RR_TYPE_AAAA) || !rdf || ldns_rdf_size(rdf) != size)
                return false;
        *ret = (Prefix) { .tag = four ? NET_TAG4 : NET_TAG6, .len = (uint8_t) (8 * size) };
        memcpy(ret->addr, ldns_rdf_data(rdf), size);
        return true;
}

/* 1 when it may be told. */
static int judge_address(const DnsQuery *q, const DnsView *v, const ldns_rr *rr, uint32_t ttl, DnsOpened *opened) {
        DnsAddress a = {};

        if (!address_of(rr, &a.prefix))
                return 0;
        bool special = prefix_is_special_here(&a.prefix, v->net4, v->net6);
        /* One that is not plain may have been cut, and end with another's. */
        if (q->plain)
                a.n_rules = name_table_open(v->names, q->name, &a.prefix, special, a.rules);
        if (a.n_rules == 0 && !name_table_all(v->names)) {
                if (!opened->withheld)
                        opened->withheld_first = a.prefix;
                opened->withheld = true;
                return 0;
        }
        if (a.n_rules == 0)
                return 1;
        if (opened->n >= DNS_ADDRESSES_MAX)
                return 0;
        a.ttl = MIN(MIN(ttl, ldns_rr_ttl(rr)), v->ttl_max);
        opened->addresses[opened->n++] = a;
        return 1;
}

static bool is_of(const ldns_rr *rr, const ldns_rdf *owner) {
        return ldns_rr_get_class(rr) == LDNS_RR_CLASS_IN && ldns_rr_owner(rr) && ldns_dname_compare(ldns_rr_owner(rr), owner) == 0;
}

typedef struct Chain {
        const DnsQuery *query;
        const DnsView *view;
        const ldns_rr_list *records;
        const ldns_rdf *owner; /* where it has come to */
        uint32_t ttl;          /* the least so far */
        DnsOpened *opened;
        ldns_pkt *answer;
} Chain;

/* Records of the owner. 1 when the chain goes on. */
static int follow(Chain *c) {
        size_t n = MIN(ldns_rr_list_rr_count(c->records), RECORDS_MAX);
        const ldns_rr *alias = NULL;
        bool found = false;
        int r;

        for (size_t i = 0; i < n; i++) {
                const ldns_rr *rr = ldns_rr_list_rr(c->records, i);
                if (!is_of(rr, c->owner))
                        continue;
                if (ldns_rr_get_type(rr) == LDNS_RR_TYPE_CNAME && c->query->type != LDNS_RR_TYPE_CNAME)
                        alias = alias ?: rr;
                if (ldns_rr_get_type(rr) != c->query->type)
                        continue;
                found = true;
                bool address = c->query->type == LDNS_RR_TYPE_A || c->query->type == LDNS_RR_TYPE_AAAA;
                if (address && judge_address(c->query, c->view, rr, c->ttl, c->opened) <= 0)
                        continue;
                r = push(c->answer, LDNS_SECTION_ANSWER, rr, c->view->ttl_max);
                if (r < 0)
                        return r;
        }
        if (found || !alias || ldns_rr_rd_count(alias) != 1 || ldns_rdf_get_type(ldns_rr_rdf(alias, 0)) != LDNS_RDF_TYPE_DNAME)
                return 0;
        c->owner = ldns_rr_rdf(alias, 0);
        c->ttl = MIN(c->ttl, ldns_rr_ttl(alias));
        r = push(c->answer, LDNS_SECTION_ANSWER, alias, c->view->ttl_max);
        return r < 0 ? r : 1;
}

static int copy_section(ldns_pkt *answer, ldns_pkt_section section, const ldns_rr_list *records, uint16_t only, uint32_t ttl_max) {
        size_t n = MIN(ldns_rr_list_rr_count(records), RECORDS_MAX);

        for (size_t i = 0; i < n; i++) {
                const ldns_rr *rr = ldns_rr_list_rr(records, i);
                int r = only == 0 || ldns_rr_get_type(rr) == only ? push(answer, section, rr, ttl_max) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Of a policy that lets any name be asked for: whatever there is, and what it names is opened besides. */
static int judge_all(const DnsQuery *q, const ldns_pkt *from, const DnsView *v, DnsOpened *opened, ldns_pkt *answer) {
        const ldns_rr_list *records = ldns_pkt_answer(from);

        for (size_t i = 0; i < MIN(ldns_rr_list_rr_count(records), RECORDS_MAX); i++)
                (void) judge_address(q, v, ldns_rr_list_rr(records, i), UINT32_MAX, opened);
        ldns_pkt_set_ad(answer, ldns_pkt_ad(from));
        int r = copy_section(answer, LDNS_SECTION_ANSWER, records, 0, v->ttl_max);
        if (r >= 0)
                r = copy_section(answer, LDNS_SECTION_AUTHORITY, ldns_pkt_authority(from), 0, v->ttl_max);
        if (r >= 0)
                r = copy_section(answer, LDNS_SECTION_ADDITIONAL, ldns_pkt_additional(from), 0, v->ttl_max);
        return r;
}

int dns_answer_judge(const DnsQuery *q, const ldns_pkt *from, const DnsView *view, DnsOpened *ret_opened, ldns_pkt **ret) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *answer = NULL;
        Chain c = { .query = q, .view = view, .records = ldns_pkt_answer(from), .owner = ldns_rr_owner(q->question),
                    .ttl = UINT32_MAX, .opened = ret_opened };

        ret_opened->n = 0;
        ret_opened->withheld = false;
        int r = dns_answer_new(q, (uint8_t) ldns_pkt_get_rcode(from), &answer);
        if (r < 0)
                return r;
        c.answer = answer;
        if (name_table_all(view->names))
                r = judge_all(q, from, view, ret_opened, answer);
        else {
                for (unsigned i = 0; r >= 0 && i < CHAIN_MAX && (r = follow(&c)) > 0; i++)
                        ;
                if (r >= 0)
                        r = copy_section(answer, LDNS_SECTION_AUTHORITY, ldns_pkt_authority(from), LDNS_RR_TYPE_SOA, view->ttl_max);
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(answer);
        return 0;
}

static int to_wire(const ldns_pkt *p, uint8_t **ret, size_t *ret_size) {
        return ldns_pkt2wire(ret, p, ret_size) == LDNS_STATUS_OK ? 0 : -EMSGSIZE;
}

int dns_answer_write(const DnsQuery *q, const ldns_pkt *answer, size_t max, uint8_t **ret, size_t *ret_size) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *cut = NULL;

        int r = to_wire(answer, ret, ret_size);
        if (r >= 0 && *ret_size <= max)
                return 0;
        if (r >= 0) {
                free(*ret);
                *ret = NULL;
        }
        r = dns_answer_new(q, (uint8_t) ldns_pkt_get_rcode(answer), &cut);
        if (r < 0)
                return r;
        ldns_pkt_set_tc(cut, true);
        return to_wire(cut, ret, ret_size);
}

int dns_upstream_query(const DnsQuery *q, uint16_t id, uint8_t **ret, size_t *ret_size) {
        ldns_rdf *name = ldns_rdf_clone(ldns_rr_owner(q->question));
        _cleanup_(ldns_pkt_freep) ldns_pkt *p = NULL;

        if (!name)
                return -ENOMEM;
        ldns_dname2canonical(name);
        /* Takes the name, but not when it fails. */
        p = ldns_pkt_query_new(name, (ldns_rr_type) q->type, LDNS_RR_CLASS_IN, LDNS_RD);
        if (!p) {
                ldns_rdf_deep_free(name);
                return -ENOMEM;
        }
        ldns_pkt_set_id(p, id);
        ldns_pkt_set_edns_udp_size(p, DNS_UDP_MAX);
        ldns_pkt_set_edns_do(p, q->want_dnssec);
        return to_wire(p, ret, ret_size);
}

int dns_upstream_parse(const DnsQuery *q, uint16_t id, const uint8_t *data, size_t size, ldns_pkt **ret) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *p = NULL;
        const ldns_rr *rr;

        if (size < HEADER_BYTES || (data[0] << 8 | data[1]) != id || !(data[2] & 0x80))
                return -EBADMSG;
        if (ldns_wire2pkt(&p, data, size) != LDNS_STATUS_OK || ldns_pkt_qdcount(p) != 1)
                return -EBADMSG;
        rr = ldns_rr_list_rr(ldns_pkt_question(p), 0);
        if (!rr || (uint16_t) ldns_rr_get_type(rr) != q->type || !is_of(rr, ldns_rr_owner(q->question)))
                return -EBADMSG;
        *ret = TAKE_PTR(p);
        return 0;
}
