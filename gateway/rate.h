/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How often a key may ask: so many requests a second, and so many at once after a time of none. Part of a Key. */

#include <stdbool.h>
#include <stdint.h>

typedef struct RateLimit {
        uint32_t per_second, burst;
} RateLimit;

typedef struct Rate {
        uint64_t full_usec;    /* when all of the burst is there again; 0: it is */
} Rate;

/* Takes one at now_usec. Else *ret_wait_usec is when there will be one. *ret_left is how many are left. */
bool rate_take(Rate *r, const RateLimit *limit, uint64_t now_usec, uint32_t *ret_left, uint64_t *ret_wait_usec);
