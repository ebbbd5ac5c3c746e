/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a policy means, said once more and as plainly as can be: for tests, against which everything that was
 * made to be fast has to hold. Makes policies and packets at random, but so that they often meet. */

#include "net/policy.h"

typedef struct ModelRule {
        PolicyList list;
        Prefix prefix;
        const char *protocol;  /* tcp, udp, icmp, any */
        unsigned first, last;  /* ports; first > last: all */
        bool host;
} ModelRule;

#define MODEL_RULES_MAX 24U

typedef struct Model {
        PolicyDefault def;
        ModelRule rules[MODEL_RULES_MAX];
        size_t n_rules;
} Model;

typedef struct ModelPacket {
        Prefix remote;         /* of full length */
        uint8_t proto;         /* IPPROTO_* */
        unsigned port;
        bool inbound;
} ModelPacket;

void model_random(Model *m, unsigned *seed);
void model_packet(const Model *m, unsigned *seed, ModelPacket *ret);
bool model_allows(const Model *m, const ModelPacket *p);
/* What a compiled table says of it; names open nothing. */
bool model_table_allows(const PolicyTable *t, const ModelPacket *p);
/* The rules as text into a policy. */
int model_policy(const Model *m, Policy **ret);
