/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Option 'tenant': whose something is to be, given by a client that serves many (DelegateTo=). NULL: it was not given.
 *
 * The owner of a thing passes whichever tenant it belongs to, and so does a delegate that names none. Where it names one,
 * what belongs to another is as not there. */

#include "daemon/manager.h"

/* May actor name it, and is it a name? 0, or negative with error set. */
int bus_tenant_check(uid_t actor, const char *tenant, sd_bus_error *error);
/* The same, where s must be that tenant's. */
int bus_tenant_check_sandbox(uid_t actor, const char *tenant, const Sandbox *s, sd_bus_error *error);
/* Whose things a create may use that names this tenant: NULL for all, as root may. */
const char *bus_tenant_scope(uid_t actor, const char *tenant);
/* The tenant of s in its owner's hands; NULL in another's, who has none of that name. */
const char *bus_tenant_of(const Sandbox *s, uid_t actor);
