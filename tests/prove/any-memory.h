/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Any guest memory: up to GUEST_REGIONS_MAX regions of any place and size, as guest_mem_init() and
 * guest_mem_add_region() may have left them (shown in guest-mem.c). */

#include "prove.h"
#include "vmm/guest-mem.h"
#include "vmm/memmap.h"

#define REGION_STEP MIB(2)
#define ANY_REGION_BYTES_MAX (1ULL << 40)

/* Of whole steps, in order, apart from each other, and ending where addresses do at the latest. */
static inline bool regions_in_order(const GuestMem *m) {
        if (m->n_regions > GUEST_REGIONS_MAX)
                return false;
        for (unsigned i = 0; i < m->n_regions; i++) {
                const GuestRegion *r = &m->regions[i];

                if (r->size == 0 || r->size % REGION_STEP != 0 || r->gpa % REGION_STEP != 0 ||
                    r->size > UINT64_MAX - r->gpa)
                        return false;
                if (i > 0 && r->gpa < r[-1].gpa + r[-1].size)
                        return false;
        }
        return true;
}

/* What P1 says, in other words than guest_mem_ptr(): the first byte and what follows lie in one region. */
static inline bool in_one_region(const GuestMem *m, uint64_t gpa, uint64_t len) {
        for (unsigned i = 0; i < m->n_regions; i++) {
                uint64_t start = m->regions[i].gpa, end = start + m->regions[i].size;

                if (start <= gpa && gpa < end && len <= UINT64_MAX - gpa && gpa + len <= end)
                        return true;
        }
        return false;
}

/* For proofs that look at addresses alone: what is at them is not there. */
static inline GuestMem any_memory(void) {
        static uint8_t places[GUEST_REGIONS_MAX];
        GuestMem m = { .n_regions = (unsigned) any_below(GUEST_REGIONS_MAX + 1) };

        for (unsigned i = 0; i < GUEST_REGIONS_MAX; i++) {
                m.regions[i].gpa = any_u64();
                m.regions[i].size = any_below(ANY_REGION_BYTES_MAX + 1);
                m.regions[i].hva = &places[i];
        }
        assume(regions_in_order(&m));
        return m;
}

/* One region of so many bytes, for proofs that look at the bytes: one byte beyond is an error to CBMC. */
static inline GuestMem any_small_memory(uint64_t bytes) {
        GuestMem m = { .n_regions = 1, .regions[0] = { .gpa = any_u64(), .size = bytes, .hva = malloc(bytes) } };

        assume(m.regions[0].hva && m.regions[0].gpa < UINT64_MAX - bytes);
        return m;
}
