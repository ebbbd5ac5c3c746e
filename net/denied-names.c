/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "net/denied-names.h"

void denied_names_done(DeniedNames *d) {
        free(d->names);
        *d = (DeniedNames) {};
}

static void tell_one(DeniedName *one, uint64_t now, DeniedTell tell, void *userdata) {
        tell(one->reason, one->name, one->address, one->count, userdata);
        one->count = 0;
        one->told = now;
}

static DeniedName *find(DeniedNames *d, const char *reason, const char *name) {
        for (size_t i = 0; i < d->n; i++)
                if (streq(d->names[i].name, name) && streq(d->names[i].reason, reason))
                        return &d->names[i];
        return NULL;
}

void denied_names_add(DeniedNames *d, const char *reason, const char *name, const char *address, uint64_t now,
                      uint64_t interval_usec, DeniedTell tell, void *userdata) {
        if (!d->names)
                d->names = new0(DeniedName, DENIED_MAX);
        DeniedName *one = d->names ? find(d, reason, name) : NULL;

        if (one) {
                one->count++;
                if (now - one->told >= interval_usec)
                        tell_one(one, now, tell, userdata);
                return;
        }
        if (!d->names || d->n >= DENIED_MAX) {
                d->others += d->others < UINT32_MAX;
                return;
        }
        one = &d->names[d->n++];
        *one = (DeniedName) { .reason = reason, .count = 1 };
        (void) snprintf(one->name, sizeof(one->name), "%s", name);
        (void) snprintf(one->address, sizeof(one->address), "%s", address);
        tell_one(one, now, tell, userdata);
}

bool denied_names_flush(DeniedNames *d, uint64_t now, uint64_t interval_usec, DeniedTell tell, void *userdata) {
        for (size_t i = 0; i < d->n;) {
                DeniedName *one = &d->names[i];
                if (now - one->told < interval_usec) {
                        i++;
                        continue;
                }
                if (one->count > 0)
                        tell_one(one, now, tell, userdata);
                /* Begins anew. */
                d->names[i] = d->names[--d->n];
        }
        if (d->others > 0)
                tell("name", "", "", d->others, userdata);
        d->others = 0;
        return d->n > 0;
}
