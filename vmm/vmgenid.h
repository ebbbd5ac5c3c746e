/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The generation id of the virtual machine: 16 bytes in memory of the guest's that its firmware tables
 * point to ("Virtual Machine Generation ID", Microsoft 2012; the device is in vmm/acpi.c).
 *
 * A new value for each VM that is built, and one more whenever a saved state is loaded. A guest
 * reads it when it likes; Linux does so at boot and mixes it into its random pool, so that no two boots
 * of one template begin alike. It is not told of a change: ACPI would want an interrupt for that, of
 * a Generic Event Device, and a GSI leads nowhere without an IOAPIC or a PIC, of which there is neither.
 * What makes copies of a guest differ is the agent, which gets fresh entropy and reseeds the kernel's
 * generator before anything of the user's runs: earlier than an interrupt would. */

#include "vmm/error.h"
#include "vmm/guest-mem.h"

#define VMGENID_BYTES 16U

int vmgenid_renew(const GuestMem *m, ErrorText *e);
