/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "base/macros.h"
#include "clock.h"

uint64_t fuzz_clock_usec = 1000 * USEC_PER_SEC;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
        if (clock != CLOCK_MONOTONIC)
                return __real_clock_gettime(clock, ret);
        *ret = (struct timespec) {
                .tv_sec = (time_t) (fuzz_clock_usec / USEC_PER_SEC),
                .tv_nsec = (long) (fuzz_clock_usec % USEC_PER_SEC * NSEC_PER_USEC),
        };
        return 0;
}
