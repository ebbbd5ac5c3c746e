/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What names opened for one sandbox, so that it does not get more than its share of the map.
 *
 * Owned by a ResolverSandbox. Only what has not run out is counted: the rest is cube-netd's to take away, once no flow
 * lives that it may have opened. */

#include "net/dns-message.h"
#include "net/resolver-maps.h"

#define OPENED_MAX 1024U

typedef struct Opened {
        NetNameKey key;
        uint64_t expires;
} Opened;

typedef struct OpenedNames {
        Opened *opened;
        size_t n, allocated;
} OpenedNames;

void opened_names_done(OpenedNames *o);
/* In force when it returns. Times in ns of CLOCK_MONOTONIC. Too many: the one that would run out first is closed. */
int opened_names_add(OpenedNames *o, const ResolverMaps *maps, uint32_t slot, uint32_t policy, const DnsAddress *address,
                     const char *name, uint64_t now, uint64_t expires);
/* One that is in the map already. */
int opened_names_count(OpenedNames *o, const ResolverMaps *maps, const NetNameKey *key, uint64_t now, uint64_t expires);
/* Forgets what has run out; whether there is anything left. */
bool opened_names_expire(OpenedNames *o, uint64_t now);
