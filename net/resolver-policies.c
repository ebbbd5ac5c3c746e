/* SPDX-License-Identifier: Apache-2.0 */
#include "net/resolver-policies.h"

#define BUCKETS 1024U

typedef struct Known {
        uint32_t id;
        bool stale;
        NameTable *names;
        struct Known *next;
} Known;

struct ResolverPolicies {
        Known *buckets[BUCKETS];
        size_t n;
};

int resolver_policies_new(ResolverPolicies **ret) {
        *ret = new0(ResolverPolicies, 1);
        return *ret ? 0 : -ENOMEM;
}

static Known *find(const ResolverPolicies *p, uint32_t id) {
        for (Known *k = p->buckets[id % BUCKETS]; k; k = k->next)
                if (k->id == id)
                        return k;
        return NULL;
}

static void remove_if(ResolverPolicies *p, size_t bucket, bool (*wanted)(const Known *k, uint32_t id), uint32_t id) {
        for (Known **i = &p->buckets[bucket]; *i;) {
                Known *k = *i;
                if (!wanted(k, id)) {
                        i = &k->next;
                        continue;
                }
                *i = k->next;
                p->n--;
                name_table_free(k->names);
                free(k);
        }
}

static bool is_any(const Known *k, uint32_t id) {
        return true;
}

static bool is_stale(const Known *k, uint32_t id) {
        return k->stale;
}

static bool is_id(const Known *k, uint32_t id) {
        return k->id == id;
}

ResolverPolicies *resolver_policies_free(ResolverPolicies *p) {
        if (!p)
                return NULL;
        for (size_t i = 0; i < BUCKETS; i++)
                remove_if(p, i, is_any, 0);
        free(p);
        return NULL;
}

const NameTable *resolver_policies_get(const ResolverPolicies *p, uint32_t id) {
        const Known *k = find(p, id);
        return k ? k->names : NULL;
}

void resolver_policies_begin(ResolverPolicies *p) {
        for (size_t i = 0; i < BUCKETS; i++)
                for (Known *k = p->buckets[i]; k; k = k->next)
                        k->stale = true;
}

void resolver_policies_end(ResolverPolicies *p) {
        for (size_t i = 0; i < BUCKETS; i++)
                remove_if(p, i, is_stale, 0);
}

int resolver_policies_put(ResolverPolicies *p, uint32_t id, NameTable *names) {
        Known *k = find(p, id);

        if (!k) {
                if (p->n >= 2 * NET_POLICIES_MAX)
                        return -E2BIG;
                k = new0(Known, 1);
                if (!k)
                        return -ENOMEM;
                *k = (Known) { .id = id, .next = p->buckets[id % BUCKETS] };
                p->buckets[id % BUCKETS] = k;
                p->n++;
        }
        name_table_free(k->names);
        k->names = names;
        k->stale = false;
        return 0;
}

void resolver_policies_keep(ResolverPolicies *p, uint32_t id) {
        Known *k = find(p, id);

        if (k)
                k->stale = false;
}

void resolver_policies_drop(ResolverPolicies *p, uint32_t id) {
        remove_if(p, id % BUCKETS, is_id, id);
}
