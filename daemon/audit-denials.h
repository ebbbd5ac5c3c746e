/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How many denied calls of each uid are told one by one: anybody on the host may make as many as he likes, and the
 * journal has a bound. What is beyond that in an interval is counted, and told as one entry when the interval has ended.
 * Part of Audit; calls nobody, and has no clock of its own. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define AUDIT_DENIALS_TOLD 20U
#define AUDIT_DENIALS_UIDS 32U
#define AUDIT_DENIALS_USEC 5000000ULL

typedef struct DenialsOfUid {
        uid_t uid;
        uint64_t since_usec;    /* CLOCK_MONOTONIC; 0: free */
        uint32_t told, withheld;
} DenialsOfUid;

typedef struct AuditDenials {
        DenialsOfUid uids[AUDIT_DENIALS_UIDS];
        DenialsOfUid others;    /* of all for whom there was no room; its uid is (uid_t) -1 */
} AuditDenials;

/* Counts one. Returns whether it is to be told by itself. */
bool audit_denials_admit(AuditDenials *d, uid_t uid, uint64_t now_usec);
/* Forgets one uid whose interval has ended. Returns how many calls of it were not told, and in *ret_uid whose; 0: there is
 * no such uid. */
uint32_t audit_denials_take(AuditDenials *d, uint64_t now_usec, uid_t *ret_uid);
/* When the next interval ends that has something to tell; UINT64_MAX: there is none. */
uint64_t audit_denials_next(const AuditDenials *d);
