/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <stdio.h>

#include "tests/unit/policy-model.h"

static const char *const bases[] = {
        "10.1.2.3", "10.1.200.3", "8.8.8.8", "8.8.4.4", "172.16.5.5", "172.32.0.1", "203.0.113.9", "100.64.0.9", "169.254.169.254",
        "198.51.100.77", "2001:db8::1", "2001:db8:1::5", "fd00:1::7", "fe80::9", "64:ff9b::a01:203", "64:ff9b::808:808",
        "2002:a01:203::1", "2002:808:808::1", "ff02::1",
};
static const char *const protocols[] = { "tcp", "udp", "icmp", "any" };
static const unsigned ports[] = { 0, 1, 22, 53, 80, 443, 444, 8080, 65535 };

#define SPECIAL4 "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", \
                 "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"
#define SPECIAL6 "::/128", "::1/128", "64:ff9b:1::/48", "fc00::/7", "fe80::/10", "ff00::/8"
#define NAT64 "64:ff9b::0:0/104", "64:ff9b::a00:0/104", "64:ff9b::6440:0/106", "64:ff9b::7f00:0/104", "64:ff9b::a9fe:0/112", \
              "64:ff9b::ac10:0/108", "64:ff9b::c000:0/120", "64:ff9b::c0a8:0/112", "64:ff9b::c612:0/111", \
              "64:ff9b::e000:0/100", "64:ff9b::f000:0/100"
#define SIXTOFOUR "2002:0::/24", "2002:a00::/24", "2002:6440::/26", "2002:7f00::/24", "2002:a9fe::/32", "2002:ac10::/28", \
                  "2002:c000::/40", "2002:c0a8::/32", "2002:c612::/31", "2002:e000::/20", "2002:f000::/20"

static unsigned dice(unsigned *seed, unsigned n) {
        return (unsigned) rand_r(seed) % n;
}

static void random_prefix(unsigned *seed, Prefix *ret) {
        char text[80];

        (void) prefix_parse(bases[dice(seed, ELEMENTSOF(bases))], ret);
        static const unsigned lens4[] = { 0, 7, 8, 12, 16, 17, 24, 29, 32, 32 }, lens6[] = { 0, 7, 10, 16, 24, 32, 64, 104, 120, 128 };
        ret->len = (uint8_t) (ret->tag == NET_TAG4 ? lens4 : lens6)[dice(seed, 10)];
        (void) prefix_parse(prefix_format(text, ret), ret);
}

void model_random(Model *m, unsigned *seed) {
        *m = (Model) { .def = dice(seed, 2), .n_rules = dice(seed, MODEL_RULES_MAX) };
        for (size_t i = 0; i < m->n_rules; i++) {
                ModelRule *r = &m->rules[i];
                *r = (ModelRule) { .list = dice(seed, _POLICY_LIST_MAX), .protocol = protocols[dice(seed, 4)], .first = 1 };
                random_prefix(seed, &r->prefix);
                if (!streq(r->protocol, "icmp") && dice(seed, 2)) {
                        r->first = ports[dice(seed, ELEMENTSOF(ports))];
                        r->last = r->first + dice(seed, 2) * dice(seed, 65536 - r->first);
                }
                r->host = r->list == POLICY_ALLOW && r->prefix.len == (r->prefix.tag == NET_TAG4 ? 32 : 128) && dice(seed, 3) == 0;
                /* That means more than it says; it has a test of its own. */
                if (r->list == POLICY_DENY && r->prefix.tag == NET_TAG4 && r->prefix.len == 0)
                        r->prefix.len = 1;
        }
}

void model_packet(const Model *m, unsigned *seed, ModelPacket *ret) {
        Prefix p;

        random_prefix(seed, &p);
        if (m->n_rules > 0 && dice(seed, 2))
                p = m->rules[dice(seed, (unsigned) m->n_rules)].prefix;
        for (unsigned bit = p.len; bit < (p.tag == NET_TAG4 ? 32U : 128U); bit++)
                if (dice(seed, 2))
                        p.addr[bit / 8] |= (uint8_t) (0x80U >> bit % 8);
        p.len = p.tag == NET_TAG4 ? 32 : 128;
        uint8_t icmp = p.tag == NET_TAG4 ? IPPROTO_ICMP : IPPROTO_ICMPV6, protos[] = { IPPROTO_TCP, IPPROTO_UDP, icmp, IPPROTO_SCTP };
        *ret = (ModelPacket) { .remote = p, .proto = protos[dice(seed, 4)], .inbound = dice(seed, 4) == 0 };
        ret->port = dice(seed, 2) ? ports[dice(seed, ELEMENTSOF(ports))] : dice(seed, 65536);
}

static bool covered_by_special(const Prefix *p) {
        static const char *const special[] = { SPECIAL4, SPECIAL6, NAT64, SIXTOFOUR };

        for (size_t i = 0; i < ELEMENTSOF(special); i++) {
                Prefix s;
                (void) prefix_parse(special[i], &s);
                if (prefix_covers(&s, p))
                        return true;
        }
        return false;
}

static bool matches(const ModelRule *r, const ModelPacket *p) {
        bool transport = p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP;

        if (!prefix_covers(&r->prefix, &p->remote))
                return false;
        if ((streq(r->protocol, "tcp") && p->proto != IPPROTO_TCP) || (streq(r->protocol, "udp") && p->proto != IPPROTO_UDP))
                return false;
        if (streq(r->protocol, "icmp") && (transport || p->proto == IPPROTO_SCTP))
                return false;
        if (r->first > r->last)
                return true;
        return transport && p->port >= r->first && p->port <= r->last;
}

static bool any(const Model *m, const ModelPacket *p, PolicyList list, bool host, bool special) {
        for (size_t i = 0; i < m->n_rules; i++) {
                const ModelRule *r = &m->rules[i];
                if (r->list == list && (!host || r->host) && (!special || covered_by_special(&r->prefix)) && matches(r, p))
                        return true;
        }
        return false;
}

bool model_allows(const Model *m, const ModelPacket *p) {
        PolicyList list = p->inbound ? POLICY_INBOUND : POLICY_ALLOW;
        bool host = false, special = covered_by_special(&p->remote);

        for (size_t i = 0; i < m->n_rules; i++)
                host |= !p->inbound && m->rules[i].host && prefix_covers(&m->rules[i].prefix, &p->remote);
        if (host || special || p->inbound)
                return any(m, p, list, host, special && !host);
        if (any(m, p, POLICY_ALLOW, false, false))
                return true;
        if (any(m, p, POLICY_DENY, false, false))
                return false;
        return m->def == POLICY_DEFAULT_INTERNET;
}

int model_policy(const Model *m, Policy **ret) {
        _cleanup_(policy_freep) Policy *p = NULL;
        char error[POLICY_ERROR_MAX];

        int r = policy_new(m->def, &p);
        for (size_t i = 0; r >= 0 && i < m->n_rules; i++) {
                const ModelRule *rule = &m->rules[i];
                char text[200], prefix[PREFIX_TEXT_MAX], range[32] = "";
                if (rule->first <= rule->last)
                        (void) snprintf(range, sizeof(range), ":%u-%u", rule->first, rule->last);
                (void) snprintf(text, sizeof(text), "%s %s%s%s", prefix_format(prefix, &rule->prefix), rule->protocol, range,
                                rule->host ? " host" : "");
                r = policy_add(p, rule->list, text, error);
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(p);
        return 0;
}

/* As the trie does it: the longest prefix. */
static const NetRule *lookup(const PolicyTable *t, const Prefix *remote, bool inbound) {
        const PolicyEntry *best = NULL;

        for (size_t i = 0; i < t->n_entries; i++) {
                const PolicyEntry *e = &t->entries[i];
                Prefix p = { .tag = e->key.tag & (uint8_t) ~NET_KEY_INBOUND, .len = (uint8_t) (e->key.prefix - 8) };
                memcpy(p.addr, e->key.addr, sizeof(p.addr));
                if (!!(e->key.tag & NET_KEY_INBOUND) == inbound && prefix_covers(&p, remote) &&
                    (!best || e->key.prefix > best->key.prefix))
                        best = e;
        }
        return best ? &best->rule : NULL;
}

static bool in_ranges(const NetPortRange *r, unsigned n, unsigned port) {
        for (unsigned i = 0; i < n; i++)
                if (port >= r[i].first && port <= r[i].last)
                        return true;
        return false;
}

bool model_table_allows(const PolicyTable *t, const ModelPacket *p) {
        const NetRule *r = lookup(t, &p->remote, p->inbound);

        if (p->proto == IPPROTO_TCP)
                return r->flags & NET_RULE_TCP ||
                       (r->flags & NET_RULE_TCP_PORTS && in_ranges(t->sets[r->set].tcp, t->sets[r->set].n_tcp, p->port));
        if (p->proto == IPPROTO_UDP)
                return r->flags & NET_RULE_UDP ||
                       (r->flags & NET_RULE_UDP_PORTS && in_ranges(t->sets[r->set].udp, t->sets[r->set].n_udp, p->port));
        return r->flags & (p->proto == IPPROTO_SCTP ? NET_RULE_OTHER : NET_RULE_ICMP);
}
