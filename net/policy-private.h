/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the reader of rules (policy.c) hands to the compiler (policy-compile.c). */

#include "net/policy.h"

#define PROTO_TCP 1U
#define PROTO_UDP 2U
#define PROTO_ICMP 4U
#define PROTO_OTHER 8U
#define PROTO_ANY (PROTO_TCP|PROTO_UDP|PROTO_ICMP|PROTO_OTHER)

typedef struct Rule {
        PolicyList list;
        Prefix prefix;         /* of a name: what stands behind "in" */
        char *name;            /* NULL: prefix is meant */
        bool below;
        bool has_inside;       /* name: prefix is set */
        bool host;
        bool special;          /* prefix lies wholly inside a special range */
        uint8_t protocols;     /* PROTO_* */
        uint8_t n_ranges;      /* 0: all ports */
        NetPortRange ranges[NET_PORT_RANGES_MAX];
} Rule;

struct Policy {
        PolicyDefault def;
        Rule *rules;
        size_t n_rules, n_allocated;
};

/* The i-th special range; false behind the last. */
bool special_prefix(size_t i, Prefix *ret);
/* Lies wholly inside a special range, the host's extra ones counted. */
bool rule_is_special(const Rule *r, const Prefix *extra, size_t n_extra);
