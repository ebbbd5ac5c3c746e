/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A kernel file as people have it, made into what the VMM loads: an ELF vmlinux and its KernelInfo.
 *
 * Works on buffers. Everything in the file is hostile. */

#include "daemon/image/fault.h"
#include "daemon/kernel-info.h"

#define KERNEL_FILE_MAX MIB(512)

typedef struct KernelImage {
        const uint8_t *elf; /* inside the given buffer, or in unpacked */
        size_t elf_size;
        uint8_t *unpacked;  /* owned; NULL when the file was a vmlinux already */
        KernelInfo info;
} KernelImage;

void kernel_image_done(KernelImage *k);
/* data has to outlive *ret. -EOPNOTSUPP for what is no kernel file, -EBADMSG for a damaged one. */
int kernel_image_load(const uint8_t *data, size_t size, KernelImage *ret, Fault *fault);
