/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names that one sandbox was denied: each is told at once the first time, then once an interval, with how often it was.
 *
 * Owned by a ResolverSandbox. A guest can ask for any number of names: only so many are told one by one, the others as
 * a number. */

#include "net/policy.h"

#define DENIED_MAX 16U
#define DENIED_TEXT_MAX 260U

typedef struct DeniedName {
        char name[DENIED_TEXT_MAX], address[PREFIX_TEXT_MAX];
        const char *reason;
        uint32_t count;        /* since it was told */
        uint64_t told;         /* usec */
} DeniedName;

typedef struct DeniedNames {
        DeniedName *names;     /* DENIED_MAX, once there was one */
        size_t n;
        uint32_t others;
} DeniedNames;

typedef void (*DeniedTell)(const char *reason, const char *name, const char *address, uint32_t count, void *userdata);

void denied_names_done(DeniedNames *d);
/* reason: a literal. Whom it tells depends on what it told before. */
void denied_names_add(DeniedNames *d, const char *reason, const char *name, const char *address, uint64_t now,
                      uint64_t interval_usec, DeniedTell tell, void *userdata);
/* Every now and then: what has gathered. Whether there is still something to remember. */
bool denied_names_flush(DeniedNames *d, uint64_t now, uint64_t interval_usec, DeniedTell tell, void *userdata);
