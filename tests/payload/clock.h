/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kvm-clock as a Linux guest reads it (Documentation/virt/kvm/x86/msr.rst), and what it takes to measure it. */

#include "lib.h"

/* Nanoseconds since the guest began; 0: there is no kvm-clock. */
uint64_t clock_monotonic(void);
/* The real time is nsec now; what it is since then. 0: nobody has said. */
void clock_set_realtime(uint64_t nsec);
uint64_t clock_realtime(void);
/* Whether the VMM has said, since the last call, that the guest was away. */
bool clock_was_away(void);
/* For waits that nobody gives up but where something is wrong: true for a minute from the first call on. *end is 0 then.
 * How often a loop looks says nothing: the host may have no CPU left for what is waited for. */
bool clock_patient(uint64_t *end);
/* How far the TSC comes in a millisecond. */
uint64_t clock_tsc_per_msec(void);
