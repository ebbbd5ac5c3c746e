/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "gateway/rate.h"

bool rate_take(Rate *r, const RateLimit *limit, uint64_t now_usec, uint32_t *ret_left, uint64_t *ret_wait_usec) {
        uint64_t each = USEC_PER_SEC / MAX(limit->per_second, 1U), most = each * limit->burst;
        uint64_t missing = r->full_usec > now_usec ? r->full_usec - now_usec : 0;

        *ret_left = 0;
        *ret_wait_usec = 0;
        if (missing + each > most) {
                *ret_wait_usec = missing + each - most;
                return false;
        }
        r->full_usec = now_usec + missing + each;
        *ret_left = (uint32_t) ((most - missing) / each) - 1;
        return true;
}
