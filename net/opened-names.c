/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "net/opened-names.h"

void opened_names_done(OpenedNames *o) {
        free(o->opened);
        *o = (OpenedNames) {};
}

bool opened_names_expire(OpenedNames *o, uint64_t now) {
        for (size_t i = 0; i < o->n;)
                if (o->opened[i].expires < now)
                        o->opened[i] = o->opened[--o->n];
                else
                        i++;
        return o->n > 0;
}

static void close_first(OpenedNames *o, const ResolverMaps *maps) {
        size_t first = 0;

        for (size_t i = 1; i < o->n; i++)
                if (o->opened[i].expires < o->opened[first].expires)
                        first = i;
        (void) resolver_maps_remove(maps, &o->opened[first].key);
        o->opened[first] = o->opened[--o->n];
}

static Opened *find(OpenedNames *o, const NetNameKey *key) {
        for (size_t i = 0; i < o->n; i++)
                if (memcmp(&o->opened[i].key, key, sizeof(*key)) == 0)
                        return &o->opened[i];
        return NULL;
}

int opened_names_count(OpenedNames *o, const ResolverMaps *maps, const NetNameKey *key, uint64_t now, uint64_t expires) {
        Opened *known = find(o, key);

        if (known) {
                known->expires = expires;
                return 0;
        }
        if (o->n >= OPENED_MAX)
                (void) opened_names_expire(o, now);
        if (o->n >= OPENED_MAX)
                close_first(o, maps);
        if (o->n == o->allocated) {
                size_t n = o->allocated ? 2 * o->allocated : 16;
                Opened *opened = reallocarray(o->opened, n, sizeof(Opened));
                if (!opened)
                        return -ENOMEM;
                o->opened = opened;
                o->allocated = n;
        }
        o->opened[o->n++] = (Opened) { .key = *key, .expires = expires };
        return 0;
}

/* Where the rule stands already, else a place that is free, else the one of what runs out first. */
static uint8_t choose_index(const ResolverMaps *maps, NetNameKey key, const NetRule *rule, uint64_t now, NetName *present) {
        uint64_t least = UINT64_MAX;
        uint8_t best = 0;

        for (key.index = 0; key.index < NET_NAME_RULES; key.index++) {
                NetName name;
                bool there = resolver_maps_get(maps, &key, &name) >= 0;
                if (there && memcmp(&name.rule, rule, sizeof(*rule)) == 0) {
                        *present = name;
                        return key.index;
                }
                uint64_t until = there && name.expires > now ? name.expires : 0;
                if (until < least) {
                        least = until;
                        best = key.index;
                }
        }
        *present = (NetName) {};
        return best;
}

static int add_rule(OpenedNames *o, const ResolverMaps *maps, NetNameKey *key, const NetRule *rule, const char *name,
                    uint64_t now, uint64_t expires) {
        NetName present, value = { .rule = *rule };

        key->index = choose_index(maps, *key, rule, now, &present);
        value.expires = MAX(expires, present.expires);
        value.used = present.used;
        (void) snprintf(value.name, sizeof(value.name), "%s", name);
        /* Counted first: what is in the map is known. */
        int r = opened_names_count(o, maps, key, now, value.expires);
        return r < 0 ? r : resolver_maps_put(maps, key, &value);
}

int opened_names_add(OpenedNames *o, const ResolverMaps *maps, uint32_t slot, uint32_t policy, const DnsAddress *address,
                     const char *name, uint64_t now, uint64_t expires) {
        NetNameKey key = { .slot = slot, .policy = policy, .tag = address->prefix.tag };

        memcpy(&key.addr, address->prefix.addr, sizeof(key.addr));
        for (size_t i = 0; i < address->n_rules; i++) {
                int r = add_rule(o, maps, &key, &address->rules[i], name, now, expires);
                if (r < 0)
                        return r;
        }
        return 0;
}
