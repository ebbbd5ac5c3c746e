/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where things are in guest physical memory. RAM fills everything below MEMMAP_HOLE_START and what
 * is left starts at 4 GiB. */

#include <stdint.h>

#include "base/macros.h"

#define MEMMAP_PVH_INFO 0x6000U          /* hvm_start_info, module list, memory map */
#define MEMMAP_CMDLINE 0x20000U
#define MEMMAP_CMDLINE_MAX 4096U
#define MEMMAP_LOW_END 0x9fc00U          /* end of low RAM in the memory map */
#define MEMMAP_ACPI 0xe0000U             /* RSDP and all tables, up to 1 MiB */
#define MEMMAP_ACPI_END 0x100000U
#define MEMMAP_VMGENID 0xfe000U          /* inside it, a page of its own; vmm/vmgenid.h */
#define MEMMAP_RESET_VECTOR 0xffff0U     /* inside it; vmm/pvh.c */
#define MEMMAP_HIGH 0x100000U            /* RAM again, kernel */

#define MEMMAP_HOLE_START 0xc0000000ULL
#define MEMMAP_PCI_MMIO 0xc0000000ULL    /* BARs, 512 MiB */
#define MEMMAP_PCI_MMIO_SIZE 0x20000000ULL
#define MEMMAP_ECAM 0xe0000000ULL        /* bus 0 only */
#define MEMMAP_ECAM_SIZE 0x100000ULL
#define MEMMAP_LAPIC 0xfee00000ULL
#define MEMMAP_HOLE_END 0x100000000ULL
/* Where memory can be plugged begins at the first multiple of this behind all RAM, and not below 4 GiB:
 * Linux adds memory in pieces of this size and alignment. */
#define MEMMAP_PLUG_ALIGN MIB(128)

/* Of a guest with so much RAM. */
static inline uint64_t memmap_plug_gpa(uint64_t mem_bytes) {
        uint64_t high = mem_bytes > MEMMAP_HOLE_START ? mem_bytes - MEMMAP_HOLE_START : 0;
        return MEMMAP_HOLE_END + ALIGN_UP(high, (uint64_t) MEMMAP_PLUG_ALIGN);
}

/* Reduced-hardware ACPI registers, one byte each (ACPI 6.4, 4.8.3.6 and 4.8.3.7). */
#define PIO_ACPI_RESET 0x600U
#define PIO_ACPI_SLEEP_CONTROL 0x601U
#define PIO_ACPI_SLEEP_STATUS 0x602U
#define PIO_SERIAL 0x3f8U
