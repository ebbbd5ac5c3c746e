/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The guest's RAM as the VMM sees it: at most two regions (a hole below 4 GiB), fixed once built.
 *
 * This is the only way from a guest physical address (gpa) to bytes: nobody else adds to a host
 * address. A range is usable only when it lies wholly inside one region (P1). Owned by the
 * machine, lives as long as the VMM. */

#include <stdatomic.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/macros.h"

#define GUEST_REGIONS_MAX 2U

typedef struct GuestRegion {
        uint64_t gpa;
        uint64_t size;
        uint8_t *hva;
} GuestRegion;

typedef struct GuestMem {
        GuestRegion regions[GUEST_REGIONS_MAX];
        unsigned n_regions;
} GuestMem;

/* Reserves and maps bytes of RAM (multiple of 2 MiB) with guard pages, DONTDUMP, split around the
 * hole at MEMMAP_HOLE_START (vmm/memmap.h). */
int guest_mem_init(GuestMem *m, uint64_t bytes);
void guest_mem_done(GuestMem *m);

/* NULL when [gpa, gpa+len) is not RAM. The bytes may change at any time: copy, then check. */
void *guest_mem_ptr(const GuestMem *m, uint64_t gpa, uint64_t len);

/* Behind a copy out of guest memory: what was copied is not read a second time, however far the compiler
 * sees (P2). */
static inline void guest_mem_copied(void) {
        __asm__ volatile("" : : : "memory");
}

/* -EFAULT when the range is not RAM. */
int guest_mem_read(const GuestMem *m, uint64_t gpa, void *dst, size_t len);
int guest_mem_write(const GuestMem *m, uint64_t gpa, const void *src, size_t len);

/* Single loads and stores (P2, P3); gpa must be aligned, else -EFAULT. */
int guest_mem_load_u16(const GuestMem *m, uint64_t gpa, uint16_t *ret);
int guest_mem_store_u16(const GuestMem *m, uint64_t gpa, uint16_t v);
