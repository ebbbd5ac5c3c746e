/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names of all policies that cube-netd has told of, by the policy's id. One in cube-resolver.
 *
 * They outlive the connection: while cube-netd is away, and after it was, policies that sandboxes have go on. */

#include "net/name-table.h"

typedef struct ResolverPolicies ResolverPolicies;

int resolver_policies_new(ResolverPolicies **ret);
ResolverPolicies *resolver_policies_free(ResolverPolicies *p);
DEFINE_CLEANUP(ResolverPolicies *, resolver_policies_free);

/* NULL: not known. Borrowed until the next call. */
const NameTable *resolver_policies_get(const ResolverPolicies *p, uint32_t id);

/* cube-netd begins to tell: what is not named until resolver_policies_end() is gone then. */
void resolver_policies_begin(ResolverPolicies *p);
void resolver_policies_end(ResolverPolicies *p);
/* Takes the names, in place of what was known. */
int resolver_policies_put(ResolverPolicies *p, uint32_t id, NameTable *names);
void resolver_policies_keep(ResolverPolicies *p, uint32_t id);
void resolver_policies_drop(ResolverPolicies *p, uint32_t id);
