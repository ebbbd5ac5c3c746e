/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Puts a kernel into fresh guest memory the way the PVH boot ABI wants it: the kernel's segments,
 * initrd, command line, ACPI tables, and the start info that leads to them.
 *
 * Reads straight from the files into guest RAM. Runs once per machine, before any vCPU; the files
 * come from cubed, yet nothing in them or about them is trusted. */

#include "vmm/build-config.h"
#include "vmm/guest-mem.h"

/* The vCPU enters at config->entry with EBX = MEMMAP_PVH_INFO. */
int pvh_load(const GuestMem *mem, const BuildConfig *config, ErrorText *e);
