/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The compressed kernel inside a bzImage.
 *
 * Its last four bytes are the unpacked size: the kernel build appends them, or they are gzip's own.
 * So the memory for the result is known, and bounded, before anything is unpacked. */

#include "daemon/image/fault.h"

#define PAYLOAD_UNPACKED_MAX MIB(512)

/* gzip, bzip2, xz, lzma, zstd, lz4 (the legacy framing of Linux too); NULL for anything else. */
const char *payload_format(const uint8_t *data, size_t size);

/* *ret is the caller's to free. -EBADMSG for damage and for a size that does not fit,
 * -EOPNOTSUPP for an unknown compression, -EFBIG above the ceiling. */
int payload_unpack(const uint8_t *data, size_t size, uint8_t **ret, size_t *ret_size, Fault *fault);
