/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What start.S finds in memory: the PVH boot protocol's structures, as vmm/pvh.c lays them out. */

#include "lib.h"

typedef struct PACKED StartInfo {
        uint32_t magic, version, flags, n_modules;
        uint64_t modules, cmdline, rsdp, memmap;
        uint32_t n_memmap, reserved;
} StartInfo;

typedef struct PACKED Range {
        uint64_t gpa, size;
        uint32_t type, reserved;
} Range;
