/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The monotonic clock stands still, but for what a script lets go by: so that an input does the same each time. Of programs
 * that are linked with --wrap=clock_gettime; the fuzzer's own clock, real time, goes on. */

#include <stdint.h>

extern uint64_t fuzz_clock_usec;
