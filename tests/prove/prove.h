/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a proof is written with. dev/prove hands each PROOF() to CBMC, which takes it with every value that
 * its any_*() can have, and unwinds each loop so often; a loop that can go on beyond that is a failure.
 * All that the code under proof asserts is to be shown too, as are its array bounds, its pointers and
 * its signed arithmetic.
 *
 * A proof includes the files that it is about, so that it sees their static functions, and so that a mutant
 * (NAME.mutants) can take a file's place. */

#include "base/macros.h"

/* No loop goes round more often. */
#define PROOF(name, rounds)                             \
        void name(void);                                \
        void name(void)

/* Once for each size of a queue: QUEUE_SIZE is a power of two, up to 8. */
#define PROOF_OF_SIZES(name, rounds) PROOF(name, rounds)

#define assume(condition) __CPROVER_assume(condition)
#define prove(condition) __CPROVER_assert(condition, #condition)

/* CBMC's: without a body, any value comes back. */
bool nondet_bool(void);
uint16_t nondet_u16(void);
uint32_t nondet_u32(void);
uint64_t nondet_u64(void);
int nondet_int(void);

#define any_bool nondet_bool
#define any_u16 nondet_u16
#define any_u32 nondet_u32
#define any_u64 nondet_u64
#define any_int nondet_int

static inline uint64_t any_below(uint64_t end) {
        uint64_t v = any_u64();
        assume(v < end);
        return v;
}
