/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A guest's DNS query, and the answers to it: the only place that calls libldns.
 *
 * Queries come from guests and answers from whoever the host's resolver asked: both are hostile. An answer to a guest is
 * always made anew, out of records that were looked at one by one. */

#include <ldns/ldns.h>

#include "net/name-table.h"

/* What fits into a packet on any link. */
#define DNS_UDP_MAX 1232U
#define DNS_UDP_MIN 512U
#define DNS_QUERY_MAX 4096U
#define DNS_ADDRESSES_MAX 64U

DEFINE_CLEANUP(ldns_pkt *, ldns_pkt_free);

typedef struct DnsQuery {
        uint16_t id;
        uint16_t type;
        bool rd, cd, edns, want_dnssec;
        uint16_t udp_size;     /* of an answer by UDP at most */
        ldns_rr *question;     /* as the guest wrote it; NULL when it could not be read */
        bool plain;            /* the name has letters, digits, "-" and "_" only: no other is ever in a policy */
        char name[NET_NAME_MAX]; /* lower case, no trailing dot; odd bytes as \DDD, cut where it gets too long */
} DnsQuery;

/* 0; the rcode to answer with; negative when there is nothing to be answered. */
int dns_query_parse(const uint8_t *data, size_t size, DnsQuery *ret);
void dns_query_done(DnsQuery *q);

typedef enum DnsType {
        DNS_TYPE_REFUSED,      /* transfers, ANY and what is no type of records */
        DNS_TYPE_OPEN,         /* under policies that let any name be asked for */
        DNS_TYPE_NAMED,        /* also under those with names */
} DnsType;

DnsType dns_type_of(uint16_t type);

/* An address that an answer is to open. */
typedef struct DnsAddress {
        Prefix prefix;
        NetRule rules[NET_NAME_RULES];
        size_t n_rules;
        uint32_t ttl;          /* of it and of all names that led to it */
} DnsAddress;

typedef struct DnsOpened {
        DnsAddress addresses[DNS_ADDRESSES_MAX];
        size_t n;
        bool withheld;         /* the name led to an address that it may not open */
        Prefix withheld_first;
} DnsOpened;

typedef struct DnsView {
        const NameTable *names;
        const Prefix *net4, *net6; /* special besides those that are everywhere */
        uint32_t ttl_max;
} DnsView;

/* Without records. */
int dns_answer_new(const DnsQuery *q, uint8_t rcode, ldns_pkt **ret);
/* Of what came from upstream, as much as the policy lets through, and what it opens. */
int dns_answer_judge(const DnsQuery *q, const ldns_pkt *from, const DnsView *view, DnsOpened *ret_opened, ldns_pkt **ret);
/* The bytes; those of a truncated answer where max is not enough. */
int dns_answer_write(const DnsQuery *q, const ldns_pkt *answer, size_t max, uint8_t **ret, size_t *ret_size);

/* What is asked upstream in its place: nothing of the guest's but name and type. */
int dns_upstream_query(const DnsQuery *q, uint16_t id, uint8_t **ret, size_t *ret_size);
/* The answer to that query, or -EBADMSG. */
int dns_upstream_parse(const DnsQuery *q, uint16_t id, const uint8_t *data, size_t size, ldns_pkt **ret);
