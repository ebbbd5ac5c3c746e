/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The guest's RAM as the VMM sees it: at most two regions (a hole below 4 GiB) and, above them, the
 * region in which memory can be plugged (vmm/virtio-mem.h); fixed once built.
 *
 * This is the only way from a guest physical address (gpa) to bytes: nobody else adds to a host
 * address. A range is usable only when it lies wholly inside one region (P1). Owned by the
 * machine, lives as long as the VMM.
 *
 * All of a region stays mapped, readable and writable, whatever the guest gives back or has not been
 * given: another thread may be at work there for the guest. What it takes beyond its share is charged
 * to its own limit. */

#include <stdatomic.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/macros.h"

#define GUEST_REGIONS_MAX 3U
#define GUEST_PAGE_BYTES 4096U

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
/* One more region, for memory that is plugged later. Both are multiples of 2 MiB, and gpa is above all
 * others. */
int guest_mem_add_region(GuestMem *m, uint64_t gpa, uint64_t bytes);
void guest_mem_done(GuestMem *m);
uint64_t guest_mem_bytes(const GuestMem *m);

/* Put other memory at a range, in whole pages, while no vCPU runs: fresh zeros, or a private view of a file,
 * whose range must exist. What was there is gone. -EFAULT when the range is not RAM. */
int guest_mem_clear(GuestMem *m, uint64_t gpa, uint64_t bytes);
int guest_mem_map_file(GuestMem *m, uint64_t gpa, uint64_t bytes, int fd, uint64_t offset);
/* Private copies of pages are given up: what is mapped beneath shows again. */
int guest_mem_drop_private(GuestMem *m);

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

/* Gives the pages of a range back to the host (P12). It stays RAM; what is read there afterwards is not
 * what was written. -EFAULT when the range is not RAM, -EINVAL when it is not made of whole pages;
 * any other error is the kernel's, and some of the pages may be gone. */
int guest_mem_discard(const GuestMem *m, uint64_t gpa, uint64_t len);

/* Single loads and stores (P2, P3); gpa must be aligned, else -EFAULT. */
int guest_mem_load_u16(const GuestMem *m, uint64_t gpa, uint16_t *ret);
int guest_mem_store_u16(const GuestMem *m, uint64_t gpa, uint16_t v);
