/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Entropy from the host for the kernel's random number generator. */

#include "base/macros.h"

/* Mixes it in with full credit and makes the generator reseed from it at once: what getrandom() gives from
 * here on, the vDSO's too, differs from what another copy of this guest gets. -EINVAL for more than 256
 * bytes. */
int entropy_add(const void *data, size_t size);
