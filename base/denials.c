/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/denials.h"
#include "base/macros.h"

static bool is_over(const DenialsOfOne *o, uint64_t now_usec) {
        return o->since_usec > 0 && now_usec - o->since_usec >= DENIALS_USEC;
}

/* One with something to tell is not free before it was told. */
static bool is_free(const DenialsOfOne *o, uint64_t now_usec) {
        return o->since_usec == 0 || (is_over(o, now_usec) && o->withheld == 0);
}

static DenialsOfOne *find(Denials *d, const char *whom, uint64_t now_usec) {
        DenialsOfOne *room = NULL;

        for (size_t i = 0; i < DENIALS_SEVERAL; i++) {
                DenialsOfOne *o = &d->several[i];
                if (is_free(o, now_usec))
                        room = room ?: o;
                else if (streq(o->whom, whom))
                        return o;
        }
        if (!room && !is_free(&d->others, now_usec))
                return &d->others;
        DenialsOfOne *o = room ?: &d->others;
        *o = (DenialsOfOne) { .since_usec = now_usec };
        if (room)
                memcpy(o->whom, whom, strlen(whom) + 1);
        return o;
}

bool denials_admit(Denials *d, const char *whom, uint64_t now_usec) {
        assert(strlen(whom) < DENIALS_WHOM_MAX);

        DenialsOfOne *o = find(d, whom, now_usec);
        if (o->told < DENIALS_TOLD) {
                o->told++;
                return true;
        }
        if (o->withheld < UINT32_MAX)
                o->withheld++;
        return false;
}

static uint32_t take(DenialsOfOne *o, uint64_t now_usec, char ret_whom[static DENIALS_WHOM_MAX]) {
        if (!is_over(o, now_usec) || o->withheld == 0)
                return 0;
        uint32_t n = o->withheld;
        memcpy(ret_whom, o->whom, DENIALS_WHOM_MAX);
        *o = (DenialsOfOne) {};
        return n;
}

uint32_t denials_take(Denials *d, uint64_t now_usec, char ret_whom[static DENIALS_WHOM_MAX]) {
        for (size_t i = 0; i < DENIALS_SEVERAL; i++) {
                uint32_t n = take(&d->several[i], now_usec, ret_whom);
                if (n > 0)
                        return n;
        }
        return take(&d->others, now_usec, ret_whom);
}

uint64_t denials_next(const Denials *d) {
        uint64_t next = d->others.withheld > 0 ? d->others.since_usec + DENIALS_USEC : UINT64_MAX;

        for (size_t i = 0; i < DENIALS_SEVERAL; i++)
                if (d->several[i].withheld > 0)
                        next = MIN(next, d->several[i].since_usec + DENIALS_USEC);
        return next;
}
