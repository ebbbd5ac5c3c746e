/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/mman.h>

#include "vmm/guest-mem.h"
#include "vmm/memmap.h"

/* Inaccessible pages on both sides of each region: an overrun by anybody faults. */
#define GUARD_BYTES KIB(64)
#define REGION_ALIGN MIB(2)

/* Between its guards. As mmap(): errno says why. */
static int make_usable(uint8_t *hva, uint64_t size) {
        const int flags = MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE|MAP_FIXED;

        if (mmap(hva, size, PROT_READ|PROT_WRITE, flags, -1, 0) == MAP_FAILED)
                return -1;
        /* With transparent huge pages "always", as on Debian, each touched page would cost 2 MiB of
         * the sandbox's limit. EINVAL: a kernel without them. */
        if (madvise(hva, size, MADV_NOHUGEPAGE) < 0 && errno != EINVAL)
                return -1;
        return madvise(hva, size, MADV_DONTDUMP);
}

static int region_map(GuestRegion *region, uint64_t gpa, uint64_t size) {
        size_t total = size + 2 * GUARD_BYTES;

        uint8_t *reserved = mmap(NULL, total, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED)
                return -errno;

        uint8_t *hva = reserved + GUARD_BYTES;
        if (make_usable(hva, size) < 0) {
                int r = -errno;
                (void) munmap(reserved, total);
                return r;
        }

        *region = (GuestRegion) { .gpa = gpa, .size = size, .hva = hva };
        return 0;
}

static int add_region(GuestMem *m, uint64_t gpa, uint64_t size) {
        int r = region_map(&m->regions[m->n_regions], gpa, size);
        if (r < 0)
                return r;
        m->n_regions++;
        return 0;
}

int guest_mem_init(GuestMem *m, uint64_t bytes) {
        assert(m);

        *m = (GuestMem) {};

        if (bytes == 0 || bytes % REGION_ALIGN != 0 || bytes > UINT64_MAX / 4)
                return -EINVAL;

        uint64_t low = MIN(bytes, MEMMAP_HOLE_START);
        int r = add_region(m, 0, low);
        if (r >= 0 && bytes > low)
                r = add_region(m, MEMMAP_HOLE_END, bytes - low);
        if (r < 0)
                guest_mem_done(m);
        return r;
}

int guest_mem_add_region(GuestMem *m, uint64_t gpa, uint64_t bytes) {
        assert(m);

        if (m->n_regions == 0 || m->n_regions == GUEST_REGIONS_MAX || bytes == 0 || bytes % REGION_ALIGN != 0 ||
            gpa % REGION_ALIGN != 0 || gpa < MEMMAP_HOLE_END || bytes > UINT64_MAX / 4 || gpa > UINT64_MAX / 4)
                return -EINVAL;

        const GuestRegion *last = &m->regions[m->n_regions - 1];
        if (gpa < last->gpa + last->size)
                return -EINVAL;
        return add_region(m, gpa, bytes);
}

void guest_mem_done(GuestMem *m) {
        assert(m);

        for (unsigned i = 0; i < m->n_regions; i++) {
                GuestRegion *region = &m->regions[i];
                (void) munmap(region->hva - GUARD_BYTES, region->size + 2 * GUARD_BYTES);
        }
        *m = (GuestMem) {};
}

uint64_t guest_mem_bytes(const GuestMem *m) {
        uint64_t bytes = 0;

        assert(m);

        for (unsigned i = 0; i < m->n_regions; i++)
                bytes += m->regions[i].size;
        return bytes;
}

int guest_mem_clear(GuestMem *m, uint64_t gpa, uint64_t bytes) {
        uint8_t *hva = guest_mem_ptr(m, gpa, bytes);
        if (!hva)
                return -EFAULT;
        return make_usable(hva, bytes) < 0 ? -errno : 0;
}

int guest_mem_map_file(GuestMem *m, uint64_t gpa, uint64_t bytes, int fd, uint64_t offset) {
        const int flags = MAP_PRIVATE|MAP_NORESERVE|MAP_FIXED;

        uint8_t *hva = guest_mem_ptr(m, gpa, bytes);
        if (!hva)
                return -EFAULT;
        if (mmap(hva, bytes, PROT_READ|PROT_WRITE, flags, fd, (off_t) offset) == MAP_FAILED)
                return -errno;
        return madvise(hva, bytes, MADV_DONTDUMP) < 0 ? -errno : 0;
}

int guest_mem_drop_private(GuestMem *m) {
        assert(m);

        for (unsigned i = 0; i < m->n_regions; i++)
                if (madvise(m->regions[i].hva, m->regions[i].size, MADV_DONTNEED) < 0)
                        return -errno;
        return 0;
}

void *guest_mem_ptr(const GuestMem *m, uint64_t gpa, uint64_t len) {
        assert(m);

        for (unsigned i = 0; i < m->n_regions; i++) {
                const GuestRegion *region = &m->regions[i];

                if (gpa < region->gpa)
                        continue;

                /* Compared by subtraction, so that nothing can wrap. */
                uint64_t offset = gpa - region->gpa;
                if (offset < region->size && len <= region->size - offset)
                        return region->hva + offset;
        }
        return NULL;
}

int guest_mem_read(const GuestMem *m, uint64_t gpa, void *dst, size_t len) {
        assert(dst || len == 0);

        const void *p = guest_mem_ptr(m, gpa, len);
        if (!p)
                return -EFAULT;
        memcpy(dst, p, len);
        guest_mem_copied();
        return 0;
}

int guest_mem_write(const GuestMem *m, uint64_t gpa, const void *src, size_t len) {
        assert(src || len == 0);

        void *p = guest_mem_ptr(m, gpa, len);
        if (!p)
                return -EFAULT;
        memcpy(p, src, len);
        return 0;
}

int guest_mem_discard(const GuestMem *m, uint64_t gpa, uint64_t len) {
        if (gpa % GUEST_PAGE_BYTES != 0 || len % GUEST_PAGE_BYTES != 0)
                return -EINVAL;

        void *p = guest_mem_ptr(m, gpa, len);
        if (!p)
                return -EFAULT;
        return len > 0 && madvise(p, len, MADV_DONTNEED) < 0 ? -errno : 0;
}

static _Atomic uint16_t *word_ptr(const GuestMem *m, uint64_t gpa) {
        if (gpa % sizeof(uint16_t) != 0)
                return NULL;
        return guest_mem_ptr(m, gpa, sizeof(uint16_t));
}

int guest_mem_load_u16(const GuestMem *m, uint64_t gpa, uint16_t *ret) {
        assert(ret);

        _Atomic uint16_t *p = word_ptr(m, gpa);
        if (!p)
                return -EFAULT;
        *ret = atomic_load_explicit(p, memory_order_acquire);
        return 0;
}

int guest_mem_store_u16(const GuestMem *m, uint64_t gpa, uint16_t v) {
        _Atomic uint16_t *p = word_ptr(m, gpa);
        if (!p)
                return -EFAULT;
        atomic_store_explicit(p, v, memory_order_release);
        return 0;
}
