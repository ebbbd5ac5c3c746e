/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/ioctl.h>

#include "vmm/pagemap.h"
#include "vmm/pagemap-scan.h"

#define PAGE 4096U
#define SCAN_REGIONS 512U
#define ENTRIES 4096U
/* An entry of the pagemap (Documentation/admin-guide/mm/pagemap.rst). */
#define ENTRY_PRESENT (1ULL << 63)
#define ENTRY_SWAPPED (1ULL << 62)
#define ENTRY_FILE (1ULL << 61)

static_assert(sizeof(VmmRun[PAGEMAP_RUNS_MAX]) < VMM_MESSAGE_MAX - 4096, "all runs fit into an answer");

typedef struct Runs {
        VmmRun *runs;
        size_t n;
        uint64_t gap;             /* runs with no more between them are one */
} Runs;

static uint64_t run_end(const VmmRun *r) {
        return r->gpa + r->bytes;
}

/* Neighbours in the guest's memory and in ours. */
static bool joins(const VmmRun *a, uint64_t gpa, uint64_t hva, uint64_t gap) {
        return gpa - run_end(a) <= gap && hva - a->hva == gpa - a->gpa;
}

static void join_all(Runs *s) {
        size_t n = 0;

        for (size_t i = 0; i < s->n; i++)
                if (n > 0 && joins(&s->runs[n - 1], s->runs[i].gpa, s->runs[i].hva, s->gap))
                        s->runs[n - 1].bytes = run_end(&s->runs[i]) - s->runs[n - 1].gpa;
                else
                        s->runs[n++] = s->runs[i];
        s->n = n;
}

static void add(Runs *s, uint64_t gpa, uint64_t bytes, uint64_t hva) {
        if (s->n > 0 && joins(&s->runs[s->n - 1], gpa, hva, s->gap)) {
                s->runs[s->n - 1].bytes = gpa + bytes - s->runs[s->n - 1].gpa;
                return;
        }

        /* With a gap as wide as the memory there is one run for each region: it ends. */
        while (s->n == PAGEMAP_RUNS_MAX) {
                s->gap = s->gap == 0 ? PAGE : s->gap * 2;
                join_all(s);
        }
        if (s->n > 0 && joins(&s->runs[s->n - 1], gpa, hva, s->gap))
                s->runs[s->n - 1].bytes = gpa + bytes - s->runs[s->n - 1].gpa;
        else
                s->runs[s->n++] = (VmmRun) { .gpa = gpa, .bytes = bytes, .hva = hva };
}

static int scan_region(int fd, const GuestRegion *region, Runs *s) {
        uint64_t start = (uintptr_t) region->hva, end = start + region->size;
        PagemapScanRegion found[SCAN_REGIONS];

        while (start < end) {
                PagemapScan scan = {
                        .size = sizeof(scan),
                        .start = start,
                        .end = end,
                        .vec = (uintptr_t) found,
                        .vec_len = SCAN_REGIONS,
                        .category_inverted = PAGEMAP_SCAN_FILE | PAGEMAP_SCAN_ZERO,
                        .category_mask = PAGEMAP_SCAN_FILE | PAGEMAP_SCAN_ZERO,
                        .category_anyof_mask = PAGEMAP_SCAN_PRESENT | PAGEMAP_SCAN_SWAPPED,
                        .return_mask = PAGEMAP_SCAN_FILE,
                };

                int n = ioctl(fd, PAGEMAP_SCAN_IOCTL, &scan);
                if (n < 0)
                        return -errno;
                for (int i = 0; i < n; i++)
                        add(s, region->gpa + (found[i].start - (uintptr_t) region->hva),
                            found[i].end - found[i].start, found[i].start);
                if (scan.walk_end <= start)
                        return -EIO;
                start = scan.walk_end;
        }
        return 0;
}

static int read_region(int fd, const GuestRegion *region, Runs *s) {
        uint64_t hva = (uintptr_t) region->hva, n_pages = region->size / PAGE;
        uint64_t entries[ENTRIES];

        for (uint64_t page = 0; page < n_pages;) {
                size_t want = MIN(n_pages - page, (uint64_t) ENTRIES) * sizeof(uint64_t);

                ssize_t n = pread(fd, entries, want, (off_t) ((hva / PAGE + page) * sizeof(uint64_t)));
                if (n < 0)
                        return -errno;
                if (n < (ssize_t) sizeof(uint64_t))
                        return -EIO;
                for (size_t i = 0; i < (size_t) n / sizeof(uint64_t); i++, page++)
                        if ((entries[i] & (ENTRY_PRESENT | ENTRY_SWAPPED)) && !(entries[i] & ENTRY_FILE))
                                add(s, region->gpa + page * PAGE, PAGE, hva + page * PAGE);
        }
        return 0;
}

static int each_region(int fd, const GuestMem *m, int (*walk)(int fd, const GuestRegion *region, Runs *s),
                       VmmRun *ret, size_t *ret_n) {
        Runs s = { .runs = ret };

        for (unsigned i = 0; i < m->n_regions; i++) {
                int r = walk(fd, &m->regions[i], &s);
                if (r < 0)
                        return r;
        }
        *ret_n = s.n;
        return 0;
}

int pagemap_private_runs_slow(int fd, const GuestMem *m, VmmRun ret[static PAGEMAP_RUNS_MAX], size_t *ret_n,
                              ErrorText *e) {
        assert(m);
        assert(ret_n);

        int r = each_region(fd, m, read_region, ret, ret_n);
        return r < 0 ? error_set_errno(e, r, "reading the pagemap") : 0;
}

int pagemap_private_runs(int fd, const GuestMem *m, VmmRun ret[static PAGEMAP_RUNS_MAX], size_t *ret_n,
                         ErrorText *e) {
        assert(m);
        assert(ret_n);

        int r = each_region(fd, m, scan_region, ret, ret_n);
        if (r == -ENOTTY)
                return pagemap_private_runs_slow(fd, m, ret, ret_n, e);
        return r < 0 ? error_set_errno(e, r, "PAGEMAP_SCAN") : 0;
}
