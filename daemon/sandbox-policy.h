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
/* Of one of the lists. */
size_t sandbox_policy_count(char *const *rules);
int sandbox_policy_copy(const SandboxPolicy *p, SandboxPolicy *ret);
/* The order of rules within a list does not count, as it has no meaning. */
bool sandbox_policy_equal(const SandboxPolicy *a, const SandboxPolicy *b);
/* The same of equal ones; of others another, most often. */
uint64_t sandbox_policy_hash(const SandboxPolicy *p);
/* Nothing at all passes. */
bool sandbox_policy_is_deny(const SandboxPolicy *p);
/* With some rules more and some less, compared as they are written. What is in now stays in its order, without those of
 * remove; what is in add comes behind it, if it was not there already. -ESRCH: *ret_missing, to be removed, is not in now.
 * The default stays. */
int sandbox_policy_change(const SandboxPolicy *now, const SandboxPolicy *add, const SandboxPolicy *remove, SandboxPolicy *ret,
                          const char **ret_missing);

/* As in state.json, sandbox.json and template.json. -EBADMSG: not written by this, or by a later release. */
int sandbox_policy_to_json(const SandboxPolicy *p, json_object **ret);
int sandbox_policy_from_json(json_object *o, SandboxPolicy *ret);
