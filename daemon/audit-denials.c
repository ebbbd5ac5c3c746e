/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "daemon/audit-denials.h"

static bool is_over(const DenialsOfUid *u, uint64_t now_usec) {
        return u->since_usec > 0 && now_usec - u->since_usec >= AUDIT_DENIALS_USEC;
}

/* One with something to tell is not free before it was told. */
static bool is_free(const DenialsOfUid *u, uint64_t now_usec) {
        return u->since_usec == 0 || (is_over(u, now_usec) && u->withheld == 0);
}

static DenialsOfUid *find(AuditDenials *d, uid_t uid, uint64_t now_usec) {
        DenialsOfUid *room = NULL;

        for (size_t i = 0; i < AUDIT_DENIALS_UIDS; i++) {
                DenialsOfUid *u = &d->uids[i];
                if (is_free(u, now_usec))
                        room = room ?: u;
                else if (u->uid == uid)
                        return u;
        }
        if (!room && !is_free(&d->others, now_usec))
                return &d->others;
        DenialsOfUid *u = room ?: &d->others;
        *u = (DenialsOfUid) { .uid = room ? uid : (uid_t) -1, .since_usec = now_usec };
        return u;
}

bool audit_denials_admit(AuditDenials *d, uid_t uid, uint64_t now_usec) {
        DenialsOfUid *u = find(d, uid, now_usec);

        if (u->told < AUDIT_DENIALS_TOLD) {
                u->told++;
                return true;
        }
        if (u->withheld < UINT32_MAX)
                u->withheld++;
        return false;
}

static uint32_t take(DenialsOfUid *u, uint64_t now_usec, uid_t *ret_uid) {
        if (!is_over(u, now_usec) || u->withheld == 0)
                return 0;
        uint32_t n = u->withheld;
        *ret_uid = u->uid;
        *u = (DenialsOfUid) {};
        return n;
}

uint32_t audit_denials_take(AuditDenials *d, uint64_t now_usec, uid_t *ret_uid) {
        for (size_t i = 0; i < AUDIT_DENIALS_UIDS; i++) {
                uint32_t n = take(&d->uids[i], now_usec, ret_uid);
                if (n > 0)
                        return n;
        }
        return take(&d->others, now_usec, ret_uid);
}

uint64_t audit_denials_next(const AuditDenials *d) {
        uint64_t next = d->others.withheld > 0 ? d->others.since_usec + AUDIT_DENIALS_USEC : UINT64_MAX;

        for (size_t i = 0; i < AUDIT_DENIALS_UIDS; i++)
                if (d->uids[i].withheld > 0)
                        next = MIN(next, d->uids[i].since_usec + AUDIT_DENIALS_USEC);
        return next;
}
