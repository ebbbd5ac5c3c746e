/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whom a sandbox may talk to: what a user writes, and the tables that the filter looks it up in.
 *
 * A Policy is a default and lists of rules, each a line of text:
 *
 *     TARGET [in CIDR] [PROTOCOL[:PORTS]] [host]
 *
 *     10.1.0.0/16            8.8.8.8 udp:53           all
 *     example.com            *.example.com tcp:443,8000-8999
 *     db.example.com in 10.0.0.0/8 tcp:5432
 *     192.0.2.7 tcp:5432 host
 *
 * PROTOCOL is tcp, udp, icmp or any. "*.example.com" is what lies below example.com, not itself. "host" says
 * that the address is one of this host. A name opens an address in a special range only with "in".
 *
 * Order of a verdict: special ranges, allow, deny, default; the length of a prefix never decides between
 * lists. A special range (or an address of the host) is opened only by an allow rule that lies wholly
 * inside it (or says "host"). policy_compile() folds all of that into one rule for each prefix. */

#include "base/macros.h"
#include "net/bpf/net-maps.h"

#define POLICY_RULES_MAX 4096U
#define POLICY_TEXT_MAX 400U
#define POLICY_ERROR_MAX 300U

typedef enum PolicyDefault {
        POLICY_DEFAULT_DENY,
        POLICY_DEFAULT_INTERNET,
        _POLICY_DEFAULT_MAX,
} PolicyDefault;

typedef enum PolicyList {
        POLICY_ALLOW,
        POLICY_DENY,
        POLICY_INBOUND,        /* who may connect to the sandbox */
        _POLICY_LIST_MAX,
} PolicyList;

typedef struct Prefix {
        uint8_t tag;           /* NET_TAG4 or NET_TAG6 */
        uint8_t len;           /* bits of addr */
        uint8_t addr[16];
} Prefix;

typedef struct Policy Policy;

int policy_new(PolicyDefault def, Policy **ret);
Policy *policy_free(Policy *p);
DEFINE_CLEANUP(Policy *, policy_free);

/* A rule that can't be read is -EINVAL, one too many -E2BIG; error says which and why. */
int policy_add(Policy *p, PolicyList list, const char *text, char error[static POLICY_ERROR_MAX]);
/* Opens what only those may open whom an admin allowed to. extra: see policy_compile(). */
bool policy_opens_special(const Policy *p, const Prefix *extra, size_t n_extra);

typedef struct PolicyEntry {
        NetPolicyKey key;
        NetRule rule;
} PolicyEntry;

typedef struct PolicyName {
        char *name;            /* lower case, no trailing dot */
        bool below;            /* names that end in .name */
        NetRule rule;          /* set: an index into sets */
        bool has_inside;
        Prefix inside;         /* what its addresses have to be in */
        bool special;          /* inside lies wholly in a special range, which it opens */
} PolicyName;

typedef struct PolicyTable {
        PolicyEntry *entries;
        size_t n_entries;
        NetPortSet *sets;
        size_t n_sets;
        PolicyName *names;
        size_t n_names;
        bool dns;              /* the resolver may be asked */
        bool dns_all;          /* for any name */
} PolicyTable;

/* extra: prefixes that are special on this host besides those that are everywhere. -E2BIG: error says what. */
int policy_compile(const Policy *p, const Prefix *extra, size_t n_extra, PolicyTable **ret,
                   char error[static POLICY_ERROR_MAX]);
PolicyTable *policy_table_free(PolicyTable *t);
DEFINE_CLEANUP(PolicyTable *, policy_table_free);
bool policy_table_equal(const PolicyTable *a, const PolicyTable *b);

/* "10.0.0.0/8", "2001:db8::1". IPv4-mapped is IPv4; bits behind the prefix are dropped. -EINVAL */
int prefix_parse(const char *text, Prefix *ret);
bool prefix_covers(const Prefix *outer, const Prefix *inner);
bool prefix_is_special(const Prefix *p);
/* Also inside one of the sandbox networks; of those net6.tag may be 0. */
bool prefix_is_special_here(const Prefix *p, const Prefix *net4, const Prefix *net6);
/* The first address of a network, which the host has. */
Prefix prefix_first(const Prefix *net);
#define PREFIX_TEXT_MAX 56
char *prefix_format(char buf[static PREFIX_TEXT_MAX], const Prefix *p);
