/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* I/O ports: the serial port, the ACPI reset and sleep registers, and nothing else.
 *
 * What is not there reads as all ones and swallows writes (P15). Any vCPU may call in. */

#include "vmm/serial.h"

typedef enum PioResult {
        PIO_DONE,
        PIO_POWEROFF, /* the guest wrote S5 into the sleep control register */
        PIO_RESET,
} PioResult;

/* One access of size 1, 2 or 4. */
PioResult pio_access(Serial *serial, uint16_t port, void *data, unsigned size, bool write);
