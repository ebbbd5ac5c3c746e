/* SPDX-License-Identifier: Apache-2.0 */
#include "net/name-table.h"
#include "net/network-names.h"

typedef struct Carry {
        uint32_t to;
        const NameTable *names;
        const SlotPlan *plan;
} Carry;

int network_name_table(const PolicyTable *table, NameTable **ret) {
        _cleanup_(name_table_freep) NameTable *t = NULL;

        int r = name_table_new(table->dns_all, &t);
        for (size_t i = 0; r >= 0 && i < table->n_names; i++)
                r = name_table_add(t, &table->names[i]);
        if (r < 0)
                return r;
        name_table_seal(t);
        *ret = TAKE_PTR(t);
        return 0;
}

/* A new policy may open one address by more rules, or by fewer, than the one before. */
static int add_rule(Datapath *d, const NetNameKey *key, const NetName *name, const NetRule *rule) {
        NetNameKey k = *key;
        NetName present;

        for (k.index = 0; k.index < NET_NAME_RULES; k.index++) {
                int r = datapath_get_name(d, &k, &present);
                bool same = r >= 0 && memcmp(&present.rule, rule, sizeof(*rule)) == 0;
                if (same && present.expires >= name->expires)
                        return 0;
                if (r >= 0 && !same)
                        continue;
                present = *name;
                present.rule = *rule;
                return datapath_add_name(d, &k, &present);
        }
        return -ENOSPC;
}

static void carry(Datapath *d, const NetNameKey *key, const NetName *name, void *userdata) {
        Prefix address = { .tag = key->tag, .len = key->tag == NET_TAG4 ? 32 : 128 };
        NetNameKey k = *key;
        NetRule rules[NET_NAME_RULES];
        NetName copy = *name;
        Carry *c = userdata;

        memcpy(address.addr, &key->addr, sizeof(address.addr));
        copy.name[sizeof(copy.name) - 1] = 0;
        k.policy = c->to;
        bool special = prefix_is_special_here(&address, &c->plan->net4, &c->plan->net6);
        size_t n = name_table_open(c->names, copy.name, &address, special, rules);
        for (size_t i = 0; i < n; i++)
                (void) add_rule(d, &k, &copy, &rules[i]);
}

void network_names_carry(Datapath *d, unsigned slot, uint32_t from, uint32_t to, const PolicyTable *table, const SlotPlan *plan) {
        _cleanup_(name_table_freep) NameTable *names = NULL;

        if (table->n_names == 0 || network_name_table(table, &names) < 0)
                return;
        datapath_each_name(d, slot, from, carry, &(Carry) { .to = to, .names = names, .plan = plan });
}

void network_name_of(Datapath *d, unsigned slot, uint8_t tag, const NetAddr *addr, char ret[static NET_NAME_MAX]) {
        NetNameKey key = { .slot = slot, .tag = tag, .addr = *addr };
        NetEntry entry;
        NetName name;

        *ret = 0;
        if (datapath_get_entry(d, slot, &entry) < 0)
                return;
        key.policy = entry.policy;
        for (; key.index < NET_NAME_RULES; key.index++)
                if (datapath_get_name(d, &key, &name) >= 0) {
                        memcpy(ret, name.name, NET_NAME_MAX);
                        ret[NET_NAME_MAX - 1] = 0;
                        return;
                }
}
