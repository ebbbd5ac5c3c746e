/* SPDX-License-Identifier: Apache-2.0 */

/* P1: an address of the guest's is turned into one of ours only if all of the range lies in one region of its
 * RAM, with nothing that wraps; and what changes mappings changes them there alone (P12).
 * Bounds: three regions of up to 1 TiB each at any place, any address, any length; copies of up to 8 bytes
 * and words from a region of 16. */

#include "any-memory.h"

/* The kernel's side: gives and takes address space, notes what it is asked for. */
static struct {
        void *reserved[GUEST_REGIONS_MAX];        /* by an mmap() that chose its place */
        uint64_t reserved_bytes[GUEST_REGIONS_MAX];
        void *fixed;              /* by the last call that names a place */
        uint64_t fixed_bytes;
        unsigned n_reserved, n_returned;
} kernel;

#include <sys/mman.h>

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset) {
        errno = ENOMEM;
        if (any_bool())
                return MAP_FAILED;

        if (flags & MAP_FIXED) {
                kernel.fixed = addr;
                kernel.fixed_bytes = len;
                return addr;
        }
        unsigned i = kernel.n_reserved++;
        prove(i < GUEST_REGIONS_MAX);
        kernel.reserved[i] = malloc(len);
        assume(kernel.reserved[i]);
        kernel.reserved_bytes[i] = len;
        return kernel.reserved[i];
}

int munmap(void *addr, size_t len) {
        bool found = false;
        for (unsigned i = 0; i < kernel.n_reserved; i++)
                if (kernel.reserved[i] == addr) {
                        found = len == kernel.reserved_bytes[i];
                        kernel.reserved[i] = NULL;
                }
        prove(found);
        kernel.n_returned++;
        return 0;
}

int madvise(void *addr, size_t len, int advice) {
        kernel.fixed = addr;
        kernel.fixed_bytes = len;
        errno = any_bool() ? EINVAL : ENOMEM;
        return any_bool() ? 0 : -1;
}

#include "vmm/guest-mem.c"

/* One region, in any table. */
static GuestMem alone(const GuestMem *m, unsigned i) {
        return (GuestMem) { .n_regions = 1, .regions[0] = m->regions[i] };
}

PROOF(pointer_only_into_a_region, 3) {
        GuestMem m = any_memory();
        uint64_t gpa = any_u64(), len = any_u64();

        assume(m.n_regions == 1);
        uint8_t *p = guest_mem_ptr(&m, gpa, len);
        prove((p != NULL) == in_one_region(&m, gpa, len));
        prove(!p || p == m.regions[0].hva + (gpa - m.regions[0].gpa));
}

PROOF(pointer_only_into_one_region, 3) {
        GuestMem m = any_memory();
        uint64_t gpa = any_u64(), len = any_u64();
        uint8_t *p = guest_mem_ptr(&m, gpa, len), *found = NULL;

        for (unsigned i = 0; i < m.n_regions; i++) {
                GuestMem one = alone(&m, i);
                found = guest_mem_ptr(&one, gpa, len) ?: found;
        }
        prove(p == found);
}

PROOF(regions_are_made_apart, 3) {
        GuestMem m;
        uint64_t bytes = any_u64(), more_gpa = any_u64(), more_bytes = any_u64();

        assume(bytes <= ANY_REGION_BYTES_MAX && more_bytes <= ANY_REGION_BYTES_MAX);
        if (guest_mem_init(&m, bytes) < 0) {
                prove(m.n_regions == 0);
                return;
        }
        prove(m.n_regions >= 1 && regions_in_order(&m) && guest_mem_bytes(&m) == bytes);

        GuestMem before = m;
        int r = guest_mem_add_region(&m, more_gpa, more_bytes);
        prove(regions_in_order(&m));
        prove(m.n_regions == before.n_regions + (r == 0));
        prove(r < 0 || (more_bytes > 0 && guest_mem_bytes(&m) == bytes + more_bytes));

        for (unsigned i = 0; i < m.n_regions; i++)
                prove(m.regions[i].gpa + m.regions[i].size <= MEMMAP_HOLE_START || m.regions[i].gpa >= MEMMAP_HOLE_END);
}

PROOF(what_is_reserved_is_a_region_or_returned, 3) {
        GuestRegion region = {};
        uint64_t size = any_below(ANY_REGION_BYTES_MAX);

        if (region_map(&region, any_u64(), size) < 0) {
                prove(kernel.n_returned == kernel.n_reserved && !region.hva);
                return;
        }
        prove(kernel.n_reserved == 1 && kernel.n_returned == 0);
        prove(region.size == size && region.hva == (uint8_t *) kernel.reserved[0] + GUARD_BYTES);
        prove(kernel.reserved_bytes[0] == size + 2 * GUARD_BYTES);
}

PROOF(copies_are_whole_or_nothing, 8) {
        GuestMem m = any_small_memory(16);
        uint64_t gpa = any_u64();
        uint8_t ours[8], before[8];
        size_t len = any_below(sizeof(ours) + 1), k = any_below(sizeof(ours));

        memcpy(before, ours, sizeof(ours));
        int r = guest_mem_read(&m, gpa, ours, len);
        prove((r == 0) == in_one_region(&m, gpa, len) && (r == 0 || r == -EFAULT));
        if (r < 0 || k >= len)
                prove(ours[k] == before[k]);
        else
                prove(ours[k] == *(uint8_t *) guest_mem_ptr(&m, gpa + k, 1));

        r = guest_mem_write(&m, gpa, before, len);
        prove((r == 0) == in_one_region(&m, gpa, len) && (r == 0 || r == -EFAULT));
        if (r == 0 && k < len)
                prove(*(uint8_t *) guest_mem_ptr(&m, gpa + k, 1) == before[k]);
}

PROOF(words_are_aligned_and_in_memory, 3) {
        GuestMem m = any_small_memory(16);
        uint64_t gpa = any_u64();
        uint16_t v = any_u16(), back;

        int r = guest_mem_store_u16(&m, gpa, v);
        prove((r == 0) == (gpa % 2 == 0 && in_one_region(&m, gpa, 2)));
        prove(guest_mem_load_u16(&m, gpa, &back) == r);
        prove(r < 0 || back == v);
}

PROOF(pages_are_given_back_in_memory_alone, 3) {
        GuestMem m = any_memory();
        uint64_t gpa = any_u64(), len = any_u64();

        int r = guest_mem_discard(&m, gpa, len);
        if (kernel.fixed) {
                prove(gpa % GUEST_PAGE_BYTES == 0 && len % GUEST_PAGE_BYTES == 0);
                prove(kernel.fixed == guest_mem_ptr(&m, gpa, len) && kernel.fixed_bytes == len);
        } else
                prove(r < 0 || len == 0);
}

PROOF(mappings_change_in_memory_alone, 3) {
        GuestMem m = any_memory();
        uint64_t gpa = any_u64(), len = any_u64();

        int r = any_bool() ? guest_mem_clear(&m, gpa, len) : guest_mem_map_file(&m, gpa, len, any_int(), any_u64());
        if (kernel.fixed)
                prove(kernel.fixed == guest_mem_ptr(&m, gpa, len) && kernel.fixed_bytes == len);
        else
                prove(r < 0);
}
