/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ACPI tables of the guest: reduced hardware, a PCI host bridge with ECAM, local APICs.
 *
 * A pure function of its arguments, so that a test can dump what it makes and disassemble it.
 * RSDP first, then DSDT, FADT, MADT, MCFG and XSDT. */

#include <stdint.h>

#include "vmm/error.h"

#define ACPI_CPUS_MAX 16U

/* Values that the FADT and \_S5 announce for the registers in vmm/memmap.h. */
#define ACPI_RESET_VALUE 1U
#define ACPI_SLEEP_TYPE_S5 5U
#define ACPI_SLEEP_ENABLE 0x20U

/* Builds the tables for a place at gpa. n_cpus: CPUs that may ever be there, 1 to 16.
 * -ENOSPC when size is too small, -EINVAL. */
int acpi_build(void *buffer, size_t size, uint64_t gpa, unsigned n_cpus, size_t *ret_size);
