/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The setup header of an x86 bzImage (Linux: Documentation/arch/x86/boot.rst): where in the file
 * the compressed kernel lies, and which release it is. Borrows the buffer it was parsed from. */

#include "daemon/image/fault.h"
#include "daemon/kernel-info.h"

typedef struct BzImage {
        char release[KERNEL_RELEASE_MAX + 1]; /* "" when the header names none */
        const uint8_t *payload;
        size_t payload_size;
} BzImage;

/* By its magic only. */
bool bzimage_is(const uint8_t *data, size_t size);
/* -EBADMSG */
int bzimage_parse(const uint8_t *data, size_t size, BzImage *ret, Fault *fault);
