/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names of one policy, to be looked up: which may be asked for, and what an answer opens.
 *
 * Filled by name_table_add(), used after name_table_seal(), never changed then. Names are as dns_name_format() and
 * policies write them: lower case, no trailing dot. */

#include "net/policy.h"

typedef struct NameTable NameTable;

/* all: any name may be asked for, and those that are listed open addresses besides. */
int name_table_new(bool all, NameTable **ret);
NameTable *name_table_free(NameTable *t);
DEFINE_CLEANUP(NameTable *, name_table_free);
int name_table_add(NameTable *t, const PolicyName *name);
void name_table_seal(NameTable *t);

bool name_table_allows(const NameTable *t, const char *name);
/* The rules by which name opens an address, NET_RULE_SPECIAL set where it lies in a special range. How many; 0: it
 * opens nothing. */
size_t name_table_open(const NameTable *t, const char *name, const Prefix *address, bool special,
                       NetRule ret[static NET_NAME_RULES]);
bool name_table_all(const NameTable *t);
