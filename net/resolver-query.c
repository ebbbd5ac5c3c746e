/* SPDX-License-Identifier: Apache-2.0 */

/* A query of a guest: judged by the policy that its sandbox has, asked upstream if that lets it, and answered
 * once what the answer opens is open. */

#include "net/resolver-private.h"

/* A policy that changes meanwhile: then it is judged once more. */
#define JUDGED_MAX 4U
/* The guest counts from when it has the answer. */
#define GRACE_NSEC (5 * NSEC_PER_SEC)

struct Query {
        Resolver *resolver;
        ResolverSandbox *sandbox;
        DnsQuery dns;
        Origin origin;
        UpstreamQuery *upstream;
        Query *next, *previous;
};

static Query *query_free(Query *q) {
        if (q->previous)
                q->previous->next = q->next;
        else if (q->resolver->queries == q)
                q->resolver->queries = q->next;
        if (q->next)
                q->next->previous = q->previous;
        upstream_query_free(q->upstream);
        q->sandbox->n_queries--;
        q->resolver->n_queries--;
        dns_query_done(&q->dns);
        free(q);
        return NULL;
}

static void send_answer(const DnsQuery *q, const Origin *origin, const ldns_pkt *answer) {
        _cleanup_free_ uint8_t *data = NULL;
        size_t size;

        if (dns_answer_write(q, answer, origin->tcp ? UINT16_MAX : q->udp_size, &data, &size) < 0)
                return;
        if (origin->tcp)
                tcp_client_send(origin->tcp, data, size);
        else
                (void) sendto(origin->fd, data, size, MSG_DONTWAIT, (const struct sockaddr *) &origin->peer, origin->peer_size);
}

static void send_rcode(const DnsQuery *q, const Origin *origin, uint8_t rcode) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *answer = NULL;

        if (dns_answer_new(q, rcode, &answer) >= 0)
                send_answer(q, origin, answer);
}

/* Of the sandbox's present policy; NULL when it may not resolve, or nothing is known of it. */
static const NameTable *names_of(Resolver *r, uint32_t slot, uint32_t *ret_policy) {
        NetEntry entry;

        if (resolver_maps_entry(&r->maps, slot, &entry) < 0)
                return NULL;
        *ret_policy = entry.policy;
        return entry.flags & NET_ENTRY_DNS ? resolver_policies_get(r->policies, entry.policy) : NULL;
}

#define ASK_UPSTREAM (-1)

/* An rcode to answer with, or ASK_UPSTREAM. NXDOMAIN for what is denied: libraries take it for final, and programs fail
 * at once, while they would try again, or wait, after REFUSED. */
static int judge(Resolver *r, ResolverSandbox *s, const DnsQuery *q, const NameTable *names) {
        DnsType type = dns_type_of(q->type);

        if (!names)
                return LDNS_RCODE_SERVFAIL;
        if (type == DNS_TYPE_REFUSED)
                return LDNS_RCODE_REFUSED;
        if (name_table_all(names))
                return ASK_UPSTREAM;
        if (!q->plain || !name_table_allows(names, q->name)) {
                resolver_sandbox_denied(r, s, "name", q->name, "");
                return LDNS_RCODE_NXDOMAIN;
        }
        return type == DNS_TYPE_NAMED ? ASK_UPSTREAM : LDNS_RCODE_NOERROR;
}

static int open_all(Query *q, uint32_t policy, const DnsOpened *opened) {
        const ResolverConfig *c = &q->resolver->config;
        uint64_t now = resolver_now_nsec();

        for (size_t i = 0; i < opened->n; i++) {
                const DnsAddress *a = &opened->addresses[i];
                uint64_t life = MAX(a->ttl, c->ttl_min) * NSEC_PER_SEC + GRACE_NSEC;
                int r = opened_names_add(&q->sandbox->opened, &q->resolver->maps, q->sandbox->slot, policy, a, q->dns.name, now,
                                         now + life);
                if (r < 0)
                        return r;
        }
        return 0;
}

static void tell_withheld(Query *q, const DnsOpened *opened) {
        char text[PREFIX_TEXT_MAX];

        if (!opened->withheld)
                return;
        prefix_format(text, &opened->withheld_first);
        text[strcspn(text, "/")] = 0;
        resolver_sandbox_denied(q->resolver, q->sandbox, "answer", q->dns.name, text);
}

/* 1 when the policy was another one at the end: nothing has been opened that counts. */
static int release(Query *q, const ldns_pkt *from) {
        _cleanup_(ldns_pkt_freep) ldns_pkt *answer = NULL;
        Resolver *r = q->resolver;
        uint32_t policy = 0, after;
        DnsOpened opened;

        const NameTable *names = names_of(r, q->sandbox->slot, &policy);
        int k = judge(r, q->sandbox, &q->dns, names);
        if (k != ASK_UPSTREAM) {
                send_rcode(&q->dns, &q->origin, (uint8_t) k);
                return 0;
        }
        DnsView view = { .names = names, .net4 = &r->net4, .net6 = &r->net6, .ttl_max = r->config.ttl_max };
        k = dns_answer_judge(&q->dns, from, &view, &opened, &answer);
        if (k >= 0)
                k = open_all(q, policy, &opened);
        if (k < 0) {
                send_rcode(&q->dns, &q->origin, LDNS_RCODE_SERVFAIL);
                return 0;
        }
        if (opened.n > 0 && (!names_of(r, q->sandbox->slot, &after) || after != policy))
                return 1;
        tell_withheld(q, &opened);
        send_answer(&q->dns, &q->origin, answer);
        return 0;
}

static void on_upstream(int error, ldns_pkt **answer, void *userdata) {
        unsigned judged = 0;
        Query *q = userdata;

        q->upstream = NULL;
        if (error >= 0)
                while (judged < JUDGED_MAX && release(q, *answer) > 0)
                        judged++;
        if (error < 0 || judged >= JUDGED_MAX)
                send_rcode(&q->dns, &q->origin, LDNS_RCODE_SERVFAIL);
        query_free(q);
}

/* A guest that did not wait long enough. */
static bool is_under_way(const Resolver *r, uint32_t slot, const Origin *o, const DnsQuery *dns) {
        for (const Query *q = r->queries; q && !o->tcp; q = q->next)
                if (q->sandbox->slot == slot && !q->origin.tcp && q->dns.id == dns->id && q->dns.type == dns->type &&
                    q->origin.peer_size == o->peer_size && memcmp(&q->origin.peer, &o->peer, o->peer_size) == 0 &&
                    streq(q->dns.name, dns->name))
                        return true;
        return false;
}

/* For one of a sandbox with n of them: the oldest of those that have more than it would then have. */
static bool make_room(Resolver *r, unsigned n) {
        Query *oldest = NULL;

        for (Query *q = r->queries; q; q = q->next)
                if (q->sandbox->n_queries > n + 1)
                        oldest = q;
        if (!oldest)
                return false;
        send_rcode(&oldest->dns, &oldest->origin, LDNS_RCODE_SERVFAIL);
        query_free(oldest);
        return true;
}

static int ask(Resolver *r, ResolverSandbox *s, const Origin *origin, DnsQuery *dns) {
        if (s->n_queries >= r->config.sandbox_queries_max || (r->n_queries >= r->config.queries_max && !make_room(r, s->n_queries)))
                return -ENOBUFS;
        Query *q = new0(Query, 1);
        if (!q)
                return -ENOMEM;
        *q = (Query) { .resolver = r, .sandbox = s, .origin = *origin, .dns = *dns, .next = r->queries };
        int k = upstream_ask(r->upstream, &q->dns, on_upstream, q, &q->upstream);
        if (k < 0) {
                free(q);
                return k;
        }
        dns->question = NULL;
        if (r->queries)
                r->queries->previous = q;
        r->queries = q;
        r->n_queries++;
        s->n_queries++;
        return 0;
}

static int begin(Resolver *r, ResolverSandbox *s, const Origin *origin, DnsQuery *dns, int rcode) {
        uint32_t policy = 0;

        if (rcode == 0)
                rcode = judge(r, s, dns, names_of(r, s->slot, &policy));
        if (rcode == ASK_UPSTREAM) {
                if (is_under_way(r, s->slot, origin, dns))
                        return 0;
                rcode = ask(r, s, origin, dns) < 0 ? LDNS_RCODE_SERVFAIL : ASK_UPSTREAM;
        }
        if (rcode >= 0)
                send_rcode(dns, origin, (uint8_t) rcode);
        return 0;
}

int query_begin(Resolver *r, uint32_t slot, const Origin *origin, const uint8_t *data, size_t size) {
        ResolverSandbox *s = resolver_sandbox_get(r, slot);
        DnsQuery dns;

        if (!s || !resolver_sandbox_may_ask(r, s))
                return -EBUSY;
        int k = dns_query_parse(data, size, &dns);
        if (k >= 0)
                k = begin(r, s, origin, &dns, k);
        dns_query_done(&dns);
        return k < 0 ? -EBUSY : 0;
}

void query_forget(Resolver *r, const TcpClient *tcp) {
        for (Query *q = r->queries, *next; q; q = next) {
                next = q->next;
                if (q->origin.tcp == tcp)
                        query_free(q);
        }
}

void query_forget_all(Resolver *r) {
        while (r->queries)
                query_free(r->queries);
}
