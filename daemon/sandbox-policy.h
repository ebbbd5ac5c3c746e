/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whom a sandbox may talk to, as its user wrote it: a plain value.
 *
 * A default and lists of rules, each a line of text that net/policy.h describes. Here they are only kept, compared
 * and written down; cube-netd reads them, and says what is wrong with one (host_network_load_policy()). */

#include <json-c/json.h>

#include "base/macros.h"

typedef struct SandboxPolicy {
        bool internet;                     /* the default: all but the special ranges; else nothing */
        char **allow, **deny, **inbound;   /* NULL-terminated; may be NULL */
} SandboxPolicy;

#define SANDBOX_POLICY_INIT ((SandboxPolicy) {})

void sandbox_policy_done(SandboxPolicy *p);
int sandbox_policy_copy(const SandboxPolicy *p, SandboxPolicy *ret);
/* The order of rules within a list does not count, as it has no meaning. */
bool sandbox_policy_equal(const SandboxPolicy *a, const SandboxPolicy *b);
/* The same of equal ones; of others another, most often. */
uint64_t sandbox_policy_hash(const SandboxPolicy *p);
/* Nothing at all passes. */
bool sandbox_policy_is_deny(const SandboxPolicy *p);

/* As in state.json, sandbox.json and template.json. -EBADMSG: not written by this, or by a later release. */
int sandbox_policy_to_json(const SandboxPolicy *p, json_object **ret);
int sandbox_policy_from_json(json_object *o, SandboxPolicy *ret);
