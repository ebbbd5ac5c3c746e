/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How much of what each of many was denied is told one by one: anybody may be denied as often as he likes, and the
 * journal has a bound. What is beyond that in an interval is counted, and told as one entry when the interval has ended.
 * Part of who keeps the audit trail; calls nobody, and has no clock of its own. */

#include <stdbool.h>
#include <stdint.h>

/* A uid, or the id of a key. */
#define DENIALS_WHOM_MAX 24U
#define DENIALS_TOLD 20U
#define DENIALS_SEVERAL 32U
#define DENIALS_USEC 5000000ULL

typedef struct DenialsOfOne {
        char whom[DENIALS_WHOM_MAX];
        uint64_t since_usec;    /* CLOCK_MONOTONIC; 0: free */
        uint32_t told, withheld;
} DenialsOfOne;

typedef struct Denials {
        DenialsOfOne several[DENIALS_SEVERAL];
        DenialsOfOne others;    /* all for whom there was no room; its whom is "" */
} Denials;

/* Counts one. Returns whether it is to be told by itself. */
bool denials_admit(Denials *d, const char *whom, uint64_t now_usec);
/* Forgets one whose interval has ended. Returns how much of his was not told, and in ret_whom who he is; 0: there is no such
 * one. */
uint32_t denials_take(Denials *d, uint64_t now_usec, char ret_whom[static DENIALS_WHOM_MAX]);
/* When the next interval ends that has something to tell; UINT64_MAX: there is none. */
uint64_t denials_next(const Denials *d);
