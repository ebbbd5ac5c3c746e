/* SPDX-License-Identifier: Apache-2.0 */

/* Folds the lists of a policy into one rule for each prefix.
 *
 * A trie finds the longest prefix only, and lists don't care for lengths, so each prefix that is named anywhere
 * carries the whole verdict on its addresses: that of all rules whose prefixes cover it. Sorted by address and
 * length, those are the ones on a stack. */

#include <stdio.h>

#include "net/policy-private.h"

#define COVER_MAX 129U
#define SETS_MAX 1024U

typedef enum NodeKind {
        NODE_DEFAULT,
        NODE_SPECIAL,
        NODE_NAMES,            /* of a rule "NAME in CIDR" */
        NODE_RULE,
} NodeKind;

typedef struct Node {
        Prefix prefix;
        uint8_t tag;           /* with NET_KEY_INBOUND */
        NodeKind kind;
        const Rule *rule;
} Node;

/* Nodes of one prefix: [first, end). */
typedef struct Group {
        size_t first, end;
} Group;

typedef struct PortBits {
        uint64_t w[1024];
} PortBits;

typedef struct Verdict {
        PortBits tcp, udp;
        bool icmp, other;
} Verdict;

typedef struct Compiler {
        const Policy *policy;
        const Prefix *extra;
        size_t n_extra;
        Node *nodes;
        size_t n_nodes;
        const Rule **named;    /* rules with a name, sorted by it */
        size_t n_named;
        PolicyTable *table;
        Verdict allow, deny;
        char *error;
} Compiler;

static int compare_nodes(const void *a, const void *b) {
        const Node *x = a, *y = b;
        int r;

        if (x->tag != y->tag)
                return x->tag < y->tag ? -1 : 1;
        r = memcmp(x->prefix.addr, y->prefix.addr, sizeof(x->prefix.addr));
        return r != 0 ? r : (int) x->prefix.len - (int) y->prefix.len;
}

static void fill(PortBits *b, bool v) {
        memset(b, v ? 0xff : 0, sizeof(*b));
}

static void set_range(PortBits *b, const NetPortRange *r) {
        for (unsigned port = r->first; port <= r->last; port++)
                b->w[port / 64] |= 1ULL << port % 64;
}

static void set_ports(PortBits *b, const Rule *r) {
        if (r->n_ranges == 0)
                fill(b, true);
        for (unsigned i = 0; i < r->n_ranges; i++)
                set_range(b, &r->ranges[i]);
}

static void verdict_clear(Verdict *v) {
        memset(v, 0, sizeof(*v));
}

static void verdict_add(Verdict *v, const Rule *r) {
        if (r->protocols & PROTO_TCP)
                set_ports(&v->tcp, r);
        if (r->protocols & PROTO_UDP)
                set_ports(&v->udp, r);
        v->icmp |= !!(r->protocols & PROTO_ICMP);
        v->other |= !!(r->protocols & PROTO_OTHER);
}

/* allow, or not deny */
static void verdict_default_open(Verdict *allow, const Verdict *deny) {
        for (size_t i = 0; i < ELEMENTSOF(allow->tcp.w); i++) {
                allow->tcp.w[i] |= ~deny->tcp.w[i];
                allow->udp.w[i] |= ~deny->udp.w[i];
        }
        allow->icmp |= !deny->icmp;
        allow->other |= !deny->other;
}

static bool has_port(const PortBits *b, unsigned port) {
        return b->w[port / 64] >> port % 64 & 1;
}

/* The last port of the run that begins here. */
static unsigned run_end(const PortBits *b, unsigned port) {
        while (port < 65535 && has_port(b, port + 1))
                port += (port + 1) % 64 == 0 && b->w[(port + 1) / 64] == UINT64_MAX ? 64 : 1;
        return port;
}

/* Number of ranges, or -E2BIG. */
static int to_ranges(const PortBits *b, NetPortRange ranges[static NET_PORT_RANGES_MAX]) {
        int n = 0;

        for (unsigned port = 0; port <= 65535; port++) {
                if (port % 64 == 0 && b->w[port / 64] == 0) {
                        port += 63;
                        continue;
                }
                if (!has_port(b, port))
                        continue;
                unsigned last = run_end(b, port);
                if (n == (int) NET_PORT_RANGES_MAX)
                        return -E2BIG;
                ranges[n++] = (NetPortRange) { (uint16_t) port, (uint16_t) last };
                port = last;
        }
        return n;
}

static bool is_all(int n, const NetPortRange *ranges) {
        return n == 1 && ranges[0].first == 0 && ranges[0].last == 65535;
}

static int intern(PolicyTable *t, const NetPortSet *set, uint32_t *ret) {
        for (size_t i = 0; i < t->n_sets; i++)
                if (memcmp(&t->sets[i], set, sizeof(*set)) == 0) {
                        *ret = (uint32_t) i;
                        return 0;
                }
        if (t->n_sets >= SETS_MAX)
                return -E2BIG;
        NetPortSet *sets = reallocarray(t->sets, t->n_sets + 1, sizeof(NetPortSet));
        if (!sets)
                return -ENOMEM;
        t->sets = sets;
        t->sets[t->n_sets] = *set;
        *ret = (uint32_t) t->n_sets++;
        return 0;
}

static int to_rule(Compiler *c, const Verdict *v, const char *what, NetRule *ret) {
        NetPortSet set = {};
        NetRule rule = { .flags = (v->icmp ? NET_RULE_ICMP : 0) | (v->other ? NET_RULE_OTHER : 0) };
        int tcp = to_ranges(&v->tcp, set.tcp), udp = to_ranges(&v->udp, set.udp), r = 0;

        if (tcp < 0 || udp < 0) {
                (void) snprintf(c->error, POLICY_ERROR_MAX, "The rules for %s have more than %u ranges of ports together",
                                what, NET_PORT_RANGES_MAX);
                return -E2BIG;
        }
        rule.flags |= is_all(tcp, set.tcp) ? NET_RULE_TCP : tcp > 0 ? NET_RULE_TCP_PORTS : 0;
        rule.flags |= is_all(udp, set.udp) ? NET_RULE_UDP : udp > 0 ? NET_RULE_UDP_PORTS : 0;
        if (rule.flags & (NET_RULE_TCP_PORTS|NET_RULE_UDP_PORTS)) {
                set.n_tcp = (uint32_t) tcp;
                set.n_udp = (uint32_t) udp;
                r = intern(c->table, &set, &rule.set);
                if (r == -E2BIG)
                        (void) snprintf(c->error, POLICY_ERROR_MAX, "A policy has %u different sets of ports at most", SETS_MAX);
        }
        *ret = rule;
        return r;
}

/* The verdict on addresses for which the groups on the stack, and no others, hold. */
static int fold(Compiler *c, const Group *stack, size_t depth, NetRule *ret) {
        bool special = false, host = false, names = false, inbound = c->nodes[stack[depth - 1].first].tag & NET_KEY_INBOUND;
        char what[PREFIX_TEXT_MAX];

        for (size_t i = 0; i < depth; i++)
                for (size_t k = stack[i].first; k < stack[i].end; k++) {
                        const Node *n = &c->nodes[k];
                        special |= n->kind == NODE_SPECIAL;
                        names |= n->kind == NODE_NAMES;
                        host |= n->kind == NODE_RULE && n->rule->host;
                }

        verdict_clear(&c->allow);
        verdict_clear(&c->deny);
        for (size_t i = 0; i < depth; i++)
                for (size_t k = stack[i].first; k < stack[i].end; k++) {
                        const Node *n = &c->nodes[k];
                        if (n->kind != NODE_RULE)
                                continue;
                        if (n->rule->list == POLICY_DENY)
                                verdict_add(&c->deny, n->rule);
                        else if (host ? n->rule->host : !special || rule_is_special(n->rule, c->extra, c->n_extra))
                                verdict_add(&c->allow, n->rule);
                }
        if (!special && !host && !inbound && c->policy->def == POLICY_DEFAULT_INTERNET)
                verdict_default_open(&c->allow, &c->deny);

        int r = to_rule(c, &c->allow, prefix_format(what, &c->nodes[stack[depth - 1].first].prefix), ret);
        ret->flags |= (special ? NET_RULE_SPECIAL : 0) | (special && names ? NET_RULE_NAMES : 0) | (host ? NET_RULE_HOST : 0);
        return r;
}

static void add_node(Compiler *c, const Prefix *prefix, bool inbound, NodeKind kind, const Rule *rule) {
        c->nodes[c->n_nodes++] = (Node) {
                .prefix = *prefix,
                .tag = prefix->tag | (inbound ? NET_KEY_INBOUND : 0),
                .kind = kind,
                .rule = rule,
        };
}

static bool name_opens_special(const Compiler *c, const Rule *r) {
        return r->has_inside && rule_is_special(r, c->extra, c->n_extra);
}

static int collect(Compiler *c) {
        Prefix special;
        size_t n = 0;

        while (special_prefix(n, &special))
                n++;
        c->nodes = new0(Node, 2 * (n + c->n_extra + 2) + c->policy->n_rules);
        if (!c->nodes)
                return -ENOMEM;
        for (int inbound = 0; inbound < 2; inbound++) {
                add_node(c, &(Prefix) { .tag = NET_TAG4 }, inbound, NODE_DEFAULT, NULL);
                add_node(c, &(Prefix) { .tag = NET_TAG6 }, inbound, NODE_DEFAULT, NULL);
                for (size_t i = 0; special_prefix(i, &special); i++)
                        add_node(c, &special, inbound, NODE_SPECIAL, NULL);
                for (size_t i = 0; i < c->n_extra; i++)
                        add_node(c, &c->extra[i], inbound, NODE_SPECIAL, NULL);
        }
        for (size_t i = 0; i < c->policy->n_rules; i++) {
                const Rule *r = &c->policy->rules[i];
                if (!r->name)
                        add_node(c, &r->prefix, r->list == POLICY_INBOUND, NODE_RULE, r);
                else if (name_opens_special(c, r))
                        add_node(c, &r->prefix, false, NODE_NAMES, r);
        }
        qsort(c->nodes, c->n_nodes, sizeof(Node), compare_nodes);
        return 0;
}

static void put_entry(PolicyTable *t, const Node *n, NetRule rule) {
        PolicyEntry *e = &t->entries[t->n_entries++];

        *e = (PolicyEntry) { .key = { .prefix = 8U + n->prefix.len, .tag = n->tag }, .rule = rule };
        memcpy(e->key.addr, n->prefix.addr, sizeof(e->key.addr));
}

static int compile_prefixes(Compiler *c) {
        Group stack[COVER_MAX];
        size_t depth = 0;

        c->table->entries = new0(PolicyEntry, c->n_nodes);
        if (!c->table->entries)
                return -ENOMEM;
        for (size_t first = 0, end; first < c->n_nodes; first = end) {
                const Node *n = &c->nodes[first];
                NetRule rule;

                for (end = first + 1; end < c->n_nodes && compare_nodes(n, &c->nodes[end]) == 0; end++)
                        ;
                while (depth > 0 && (c->nodes[stack[depth - 1].first].tag != n->tag ||
                                     !prefix_covers(&c->nodes[stack[depth - 1].first].prefix, &n->prefix)))
                        depth--;
                stack[depth++] = (Group) { first, end };
                int r = fold(c, stack, depth, &rule);
                if (r < 0)
                        return r;
                put_entry(c->table, n, rule);
        }
        return 0;
}

static bool name_is_below(const char *name, const char *parent) {
        size_t n = strlen(name), m = strlen(parent);

        return n > m + 1 && name[n - m - 1] == '.' && streq(name + n - m, parent);
}

/* All that inner is about outer is about too. */
static bool name_rule_covers(const Rule *outer, const Rule *inner) {
        if (outer->has_inside != inner->has_inside || (outer->has_inside && !prefix_covers(&outer->prefix, &inner->prefix)))
                return false;
        if (outer->below && name_is_below(inner->name, outer->name))
                return true;
        return outer->below == inner->below && streq(outer->name, inner->name);
}

static int compare_named(const void *a, const void *b) {
        const Rule *const *x = a, *const *y = b;
        int r = strcmp((*x)->name, (*y)->name);

        /* In the order that they were written in. */
        return r != 0 ? r : *x < *y ? -1 : 1;
}

/* Those with this name: [*ret, end). */
static size_t find_named(const Compiler *c, const char *name, size_t *ret_end) {
        size_t low = 0, high = c->n_named;

        while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (strcmp(c->named[middle]->name, name) < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        for (high = low; high < c->n_named && streq(c->named[high]->name, name);)
                high++;
        *ret_end = high;
        return low;
}

static bool is_repeated(const Compiler *c, const Rule *r) {
        size_t end;

        for (size_t i = find_named(c, r->name, &end); i < end && c->named[i] != r; i++) {
                const Rule *other = c->named[i];
                if (other->below == r->below && other->has_inside == r->has_inside &&
                    memcmp(&other->prefix, &r->prefix, sizeof(r->prefix)) == 0)
                        return true;
        }
        return false;
}

/* As with prefixes, the most specific name carries the rules of those that cover it: itself, and what it lies below. */
static void add_covering(Compiler *c, const Rule *r) {
        for (const char *name = r->name; name; name = strchr(name, '.')) {
                size_t end;
                name += name != r->name;
                for (size_t i = find_named(c, name, &end); i < end; i++)
                        if (name_rule_covers(c->named[i], r))
                                verdict_add(&c->allow, c->named[i]);
        }
}

static int compile_name(Compiler *c, const Rule *r) {
        PolicyName *n = &c->table->names[c->table->n_names];

        if (is_repeated(c, r))
                return 0;
        *n = (PolicyName) {
                .below = r->below,
                .has_inside = r->has_inside,
                .inside = r->prefix,
                .special = name_opens_special(c, r),
        };
        verdict_clear(&c->allow);
        add_covering(c, r);
        int k = to_rule(c, &c->allow, r->name, &n->rule);
        if (k < 0)
                return k;
        n->name = strdup(r->name);
        if (!n->name)
                return -ENOMEM;
        c->table->n_names++;
        return 0;
}

static int compile_names(Compiler *c) {
        const Policy *p = c->policy;
        int r = 0;

        c->table->names = new0(PolicyName, p->n_rules);
        c->named = new0(const Rule *, p->n_rules);
        if (!c->table->names || !c->named)
                return p->n_rules > 0 ? -ENOMEM : 0;
        for (size_t i = 0; i < p->n_rules; i++)
                if (p->rules[i].name)
                        c->named[c->n_named++] = &p->rules[i];
        qsort(c->named, c->n_named, sizeof(*c->named), compare_named);
        for (size_t i = 0; r >= 0 && i < p->n_rules; i++)
                if (p->rules[i].name)
                        r = compile_name(c, &p->rules[i]);
        return r;
}

/* To addresses that no rule names. */
static bool internet_open(const PolicyTable *t) {
        for (size_t i = 0; i < t->n_entries; i++)
                if (t->entries[i].key.prefix == 8 && !(t->entries[i].key.tag & NET_KEY_INBOUND) &&
                    t->entries[i].rule.flags & NET_RULE_ALL)
                        return true;
        return false;
}

int policy_compile(const Policy *p, const Prefix *extra, size_t n_extra, PolicyTable **ret,
                   char error[static POLICY_ERROR_MAX]) {
        _cleanup_(policy_table_freep) PolicyTable *t = new0(PolicyTable, 1);
        _cleanup_free_ Compiler *c = new0(Compiler, 1);
        int r;

        if (!t || !c)
                return -ENOMEM;
        *c = (Compiler) { .policy = p, .extra = extra, .n_extra = n_extra, .table = t, .error = error };
        r = collect(c);
        if (r >= 0)
                r = compile_prefixes(c);
        if (r >= 0)
                r = compile_names(c);
        free(c->nodes);
        free(c->named);
        if (r < 0)
                return r;
        t->dns_all = internet_open(t);
        t->dns = t->n_names > 0 || t->dns_all;
        *ret = TAKE_PTR(t);
        return 0;
}

PolicyTable *policy_table_free(PolicyTable *t) {
        if (!t)
                return NULL;
        for (size_t i = 0; i < t->n_names; i++)
                free(t->names[i].name);
        free(t->names);
        free(t->entries);
        free(t->sets);
        free(t);
        return NULL;
}

static bool names_equal(const PolicyName *a, const PolicyName *b) {
        return streq(a->name, b->name) && a->below == b->below && a->has_inside == b->has_inside &&
               memcmp(&a->rule, &b->rule, sizeof(a->rule)) == 0 && memcmp(&a->inside, &b->inside, sizeof(a->inside)) == 0;
}

bool policy_table_equal(const PolicyTable *a, const PolicyTable *b) {
        if (a->n_entries != b->n_entries || a->n_sets != b->n_sets || a->n_names != b->n_names || a->dns != b->dns ||
            memcmp(a->entries, b->entries, a->n_entries * sizeof(PolicyEntry)) != 0)
                return false;
        if (a->n_sets > 0 && memcmp(a->sets, b->sets, a->n_sets * sizeof(NetPortSet)) != 0)
                return false;
        for (size_t i = 0; i < a->n_names; i++)
                if (!names_equal(&a->names[i], &b->names[i]))
                        return false;
        return true;
}
