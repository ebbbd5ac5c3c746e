/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* PAGEMAP_SCAN of <linux/fs.h> as of Linux 6.7, which the headers of Debian 12 lack. */

#include <stdint.h>
#include <sys/ioctl.h>

typedef struct PagemapScanRegion {
        uint64_t start;
        uint64_t end;
        uint64_t categories;
} PagemapScanRegion;

typedef struct PagemapScan {
        uint64_t size;
        uint64_t flags;
        uint64_t start;
        uint64_t end;
        uint64_t walk_end;
        uint64_t vec;
        uint64_t vec_len;
        uint64_t max_pages;
        uint64_t category_inverted;
        uint64_t category_mask;
        uint64_t category_anyof_mask;
        uint64_t return_mask;
} PagemapScan;

#define PAGEMAP_SCAN_IOCTL _IOWR('f', 16, PagemapScan)
#define PAGEMAP_SCAN_FILE (1U << 2)
#define PAGEMAP_SCAN_PRESENT (1U << 3)
#define PAGEMAP_SCAN_SWAPPED (1U << 4)
#define PAGEMAP_SCAN_ZERO (1U << 5)
