/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* SHA-256 (FIPS 180-4), so that the store needs no crypto library. */

#include <stdint.h>

#include "base/macros.h"

#define SHA256_SIZE 32U
#define SHA256_HEX_SIZE 65U

typedef struct Sha256 {
        uint32_t state[8];
        uint64_t bytes;
        uint8_t block[64];
} Sha256;

void sha256_init(Sha256 *s);
void sha256_add(Sha256 *s, const void *data, size_t size);
void sha256_finish(Sha256 *s, uint8_t ret[static SHA256_SIZE]);
void sha256_finish_hex(Sha256 *s, char ret[static SHA256_HEX_SIZE]);
bool sha256_hex_valid(const char *s);
