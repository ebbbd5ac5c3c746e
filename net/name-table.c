/* SPDX-License-Identifier: Apache-2.0 */
#include "net/name-table.h"

/* A name has 127 labels at most. */
#define LEVELS_MAX 128U

struct NameTable {
        bool all;
        PolicyName *rules;     /* sorted as compare_rules() has it */
        size_t n, allocated;
};

int name_table_new(bool all, NameTable **ret) {
        NameTable *t = new0(NameTable, 1);

        if (!t)
                return -ENOMEM;
        t->all = all;
        *ret = t;
        return 0;
}

NameTable *name_table_free(NameTable *t) {
        if (!t)
                return NULL;
        for (size_t i = 0; i < t->n; i++)
                free(t->rules[i].name);
        free(t->rules);
        free(t);
        return NULL;
}

int name_table_add(NameTable *t, const PolicyName *name) {
        if (t->n >= POLICY_RULES_MAX)
                return -E2BIG;
        if (t->n == t->allocated) {
                size_t n = t->allocated ? 2 * t->allocated : 16;
                PolicyName *rules = reallocarray(t->rules, n, sizeof(PolicyName));
                if (!rules)
                        return -ENOMEM;
                t->rules = rules;
                t->allocated = n;
        }
        t->rules[t->n] = *name;
        t->rules[t->n].name = strdup(name->name);
        if (!t->rules[t->n].name)
                return -ENOMEM;
        t->n++;
        return 0;
}

static int compare_names(const char *a, bool a_below, const char *b, bool b_below) {
        int r = strcmp(a, b);
        return r != 0 ? r : (int) a_below - (int) b_below;
}

/* Of one name: the rule for any address, then the narrower first. It has the rules of the wider ones in it, so that nothing is
 * lost where there is no room for all. */
static int compare_rules(const void *a, const void *b) {
        const PolicyName *x = a, *y = b;
        int r = compare_names(x->name, x->below, y->name, y->below);

        if (r == 0)
                r = (int) x->has_inside - (int) y->has_inside;
        if (r == 0)
                r = (int) y->inside.len - (int) x->inside.len;
        return r != 0 ? r : memcmp(&x->inside, &y->inside, sizeof(x->inside));
}

void name_table_seal(NameTable *t) {
        if (t->n > 0)
                qsort(t->rules, t->n, sizeof(PolicyName), compare_rules);
}

bool name_table_all(const NameTable *t) {
        return t->all;
}

/* Those with exactly this name: [*ret, end). */
static size_t find(const NameTable *t, const char *name, bool below, size_t *ret_end) {
        size_t low = 0, high = t->n;

        while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (compare_names(t->rules[middle].name, t->rules[middle].below, name, below) < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        for (high = low; high < t->n && compare_names(t->rules[high].name, t->rules[high].below, name, below) == 0;)
                high++;
        *ret_end = high;
        return low;
}

typedef struct Walk {
        const char *name;
        bool below;
        unsigned level;
} Walk;

/* From a name to those that it lies below, the longest first. */
static bool next_level(Walk *w) {
        const char *dot = strchr(w->name, '.');

        if (!dot || ++w->level >= LEVELS_MAX)
                return false;
        w->name = dot + 1;
        w->below = true;
        return true;
}

bool name_table_allows(const NameTable *t, const char *name) {
        Walk w = { .name = name };
        size_t end;

        if (t->all)
                return true;
        do
                if (find(t, w.name, w.below, &end) < end)
                        return true;
        while (next_level(&w));
        return false;
}

static bool opens(const PolicyName *rule, const Prefix *address, bool special) {
        if (special && !rule->special)
                return false;
        return !rule->has_inside || prefix_covers(&rule->inside, address);
}

static size_t add_rule(NetRule *rules, size_t n, const PolicyName *rule, bool special) {
        NetRule r = rule->rule;

        r.flags |= special ? NET_RULE_SPECIAL : 0;
        for (size_t i = 0; i < n; i++)
                if (rules[i].flags == r.flags && rules[i].set == r.set)
                        return n;
        rules[n] = r;
        return n + 1;
}

size_t name_table_open(const NameTable *t, const char *name, const Prefix *address, bool special,
                       NetRule ret[static NET_NAME_RULES]) {
        Walk w = { .name = name };
        bool plain = false;
        size_t n = 0;

        do {
                size_t end, i = find(t, w.name, w.below, &end);
                for (; i < end && n < NET_NAME_RULES; i++) {
                        const PolicyName *rule = &t->rules[i];
                        /* The most specific one has the rules of the others in it already. */
                        if (!opens(rule, address, special) || (!rule->has_inside && plain))
                                continue;
                        plain |= !rule->has_inside;
                        n = add_rule(ret, n, rule, special);
                }
        } while (next_level(&w));
        return n;
}
