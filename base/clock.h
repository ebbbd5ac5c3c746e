/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What time it is, in microseconds. */

#include <stdint.h>
#include <time.h>

#include "base/macros.h"

static inline uint64_t clock_usec(clockid_t clock) {
        struct timespec ts;

        (void) clock_gettime(clock, &ts);
        return (uint64_t) ts.tv_sec * USEC_PER_SEC + (uint64_t) ts.tv_nsec / NSEC_PER_USEC;
}

/* CLOCK_MONOTONIC: for how long something takes, and until when. */
static inline uint64_t now_usec(void) {
        return clock_usec(CLOCK_MONOTONIC);
}

/* CLOCK_REALTIME, since 1970: for what people and files are told. */
static inline uint64_t wall_usec(void) {
        return clock_usec(CLOCK_REALTIME);
}
