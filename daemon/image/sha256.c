/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "daemon/image/sha256.h"

static const uint32_t round_constants[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t rotate(uint32_t x, unsigned n) {
        return x >> n | x << (32 - n);
}

/* One round. Instead of moving the eight words along, the caller names them in another order. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                            \
        do {                                                                                        \
                uint32_t t = (h) + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +                 \
                        (((e) & (f)) ^ (~(e) & (g))) + round_constants[i] + w[i];                   \
                (d) += t;                                                                           \
                (h) = t + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +                          \
                        (((a) & (b)) ^ ((a) & (c)) ^ ((b) & (c)));                                  \
        } while (0)

static void add_block(uint32_t state[static 8], const uint8_t *block) {
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        uint32_t w[64];

        for (unsigned i = 0; i < 16; i++) {
                memcpy(&w[i], block + 4 * i, 4);
                w[i] = be32toh(w[i]);
        }
        for (unsigned i = 16; i < 64; i++) {
                uint32_t x = w[i - 15], y = w[i - 2];
                w[i] = w[i - 16] + w[i - 7] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) +
                        (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
        }

        for (unsigned i = 0; i < 64; i += 8) {
                ROUND(a, b, c, d, e, f, g, h, i);
                ROUND(h, a, b, c, d, e, f, g, i + 1);
                ROUND(g, h, a, b, c, d, e, f, i + 2);
                ROUND(f, g, h, a, b, c, d, e, i + 3);
                ROUND(e, f, g, h, a, b, c, d, i + 4);
                ROUND(d, e, f, g, h, a, b, c, i + 5);
                ROUND(c, d, e, f, g, h, a, b, i + 6);
                ROUND(b, c, d, e, f, g, h, a, i + 7);
        }

        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void sha256_init(Sha256 *s) {
        *s = (Sha256) {
                .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 },
        };
}

void sha256_add(Sha256 *s, const void *data, size_t size) {
        const uint8_t *p = data;
        size_t used = s->bytes % 64;

        s->bytes += size;
        if (used > 0) {
                size_t n = MIN(size, 64 - used);
                memcpy(s->block + used, p, n);
                if (used + n < 64)
                        return;
                add_block(s->state, s->block);
                p += n;
                size -= n;
        }
        for (; size >= 64; p += 64, size -= 64)
                add_block(s->state, p);
        if (size > 0)
                memcpy(s->block, p, size);
}

void sha256_finish(Sha256 *s, uint8_t ret[static SHA256_SIZE]) {
        static const uint8_t padding[64] = { 0x80 };
        uint64_t bits = htobe64(s->bytes * 8);
        size_t used = s->bytes % 64;

        sha256_add(s, padding, used < 56 ? 56 - used : 120 - used);
        sha256_add(s, &bits, sizeof(bits));
        for (unsigned i = 0; i < 8; i++) {
                uint32_t v = htobe32(s->state[i]);
                memcpy(ret + 4 * i, &v, 4);
        }
}

void sha256_finish_hex(Sha256 *s, char ret[static SHA256_HEX_SIZE]) {
        static const char digits[] = "0123456789abcdef";
        uint8_t sum[SHA256_SIZE];

        sha256_finish(s, sum);
        for (unsigned i = 0; i < SHA256_SIZE; i++) {
                ret[2 * i] = digits[sum[i] >> 4];
                ret[2 * i + 1] = digits[sum[i] & 15];
        }
        ret[2 * SHA256_SIZE] = 0;
}

bool sha256_hex_valid(const char *s) {
        return strlen(s) == 2 * SHA256_SIZE && strspn(s, "0123456789abcdef") == 2 * SHA256_SIZE;
}
