/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the fuzz targets share: an input that is read front to back, and is zeros where it has ended. A target does
 * not judge what it is told; it must not crash, leak, or break what it asserts. */

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"

typedef struct FuzzInput {
        const uint8_t *data;
        size_t left;
} FuzzInput;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* assert() that is told from one of the program's own. */
#define FUZZ_CHECK(expr)                                                        \
        ({                                                                      \
                if (!(expr)) {                                                  \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #expr); \
                        abort();                                                \
                }                                                               \
        })

_unused_ static size_t fuzz_bytes(FuzzInput *in, void *ret, size_t size) {
        size_t n = MIN(size, in->left);

        memset(ret, 0, size);
        if (n > 0)
                memcpy(ret, in->data, n);
        in->data += n;
        in->left -= n;
        return n;
}

_unused_ static uint8_t fuzz_u8(FuzzInput *in) {
        uint8_t v;

        (void) fuzz_bytes(in, &v, sizeof(v));
        return v;
}

_unused_ static uint16_t fuzz_u16(FuzzInput *in) {
        uint16_t v;

        (void) fuzz_bytes(in, &v, sizeof(v));
        return v;
}

_unused_ static uint32_t fuzz_u32(FuzzInput *in) {
        uint32_t v;

        (void) fuzz_bytes(in, &v, sizeof(v));
        return v;
}

/* The same file each time, with this content. */
_unused_ static int fuzz_file(const void *data, size_t size) {
        static int fd = -EBADF;

        if (fd < 0)
                fd = memfd_create("input", MFD_CLOEXEC);
        FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0);
        FUZZ_CHECK(size == 0 || pwrite(fd, data, size, 0) == (ssize_t) size);
        return fd;
}
