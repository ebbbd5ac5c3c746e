/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which pages of the guest's RAM are private to this VMM: written since its memory was mapped, hence what a
 * snapshot has to copy.
 *
 * Asked by PAGEMAP_SCAN (Linux 6.7), else read from the pagemap; both through a descriptor that cubed has
 * opened, for a jailed process can't. Stateless. */

#include "base/vmm-proto.h"
#include "vmm/error.h"
#include "vmm/guest-mem.h"

/* As many as a memory file may have. */
#define PAGEMAP_RUNS_MAX 4096U

/* By address. Where there are more runs than fit, those next to each other are joined: pages between them
 * count as private then, which costs their copy and is right all the same. */
int pagemap_private_runs(int fd, const GuestMem *m, VmmRun ret[static PAGEMAP_RUNS_MAX], size_t *ret_n,
                         ErrorText *e);
/* The same without PAGEMAP_SCAN. Zero pages that were only read count as private. */
int pagemap_private_runs_slow(int fd, const GuestMem *m, VmmRun ret[static PAGEMAP_RUNS_MAX], size_t *ret_n,
                              ErrorText *e);
