/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/macros.h"
#include "daemon/image/hash-file.h"

#define CHUNK 65536U
#define BLOCK 4096U

void hash_finish(struct sha256_ctx *s, char ret[static SHA256_HEX_SIZE]) {
        static const char digits[] = "0123456789abcdef";
        uint8_t sum[SHA256_DIGEST_SIZE];

        static_assert(SHA256_HEX_SIZE == 2 * SHA256_DIGEST_SIZE + 1, "two digits for each byte");
        sha256_digest(s, sizeof(sum), sum);
        for (size_t i = 0; i < sizeof(sum); i++) {
                ret[2 * i] = digits[sum[i] >> 4];
                ret[2 * i + 1] = digits[sum[i] & 15];
        }
        ret[2 * sizeof(sum)] = 0;
}

int hash_file(int fd, char ret[static SHA256_HEX_SIZE]) {
        uint8_t buffer[CHUNK];
        uint64_t offset = 0;
        struct sha256_ctx s;

        sha256_init(&s);
        for (;;) {
                ssize_t n = pread(fd, buffer, sizeof(buffer), (off_t) offset);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                sha256_update(&s, (size_t) n, buffer);
                offset += (uint64_t) n;
        }
        hash_finish(&s, ret);
        return 0;
}

static bool all_zero(const uint8_t *p, size_t n) {
        return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static int add_blocks(struct sha256_ctx *s, int fd, uint64_t offset, uint64_t end) {
        while (offset < end) {
                uint8_t block[BLOCK];
                uint64_t number = htole64(offset / BLOCK);
                ssize_t n = pread(fd, block, sizeof(block), (off_t) offset);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -ESTALE;
                if (!all_zero(block, (size_t) n)) {
                        sha256_update(s, sizeof(number), (const uint8_t *) &number);
                        sha256_update(s, (size_t) n, block);
                }
                offset += BLOCK;
        }
        return 0;
}

int hash_sparse_file(int fd, char ret[static SHA256_HEX_SIZE]) {
        uint64_t done = 0;
        struct stat st;
        struct sha256_ctx s;

        if (fstat(fd, &st) < 0)
                return -errno;
        sha256_init(&s);
        while (done < (uint64_t) st.st_size) {
                off_t data, hole;
                int r;

                data = lseek(fd, (off_t) done, SEEK_DATA);
                if (data < 0 && errno == ENXIO)
                        break;
                if (data < 0)
                        return -errno;
                hole = lseek(fd, data, SEEK_HOLE);
                if (hole < 0)
                        return -errno;
                /* Never a block twice, nor half a one, wherever the holes begin. */
                done = MAX(done, ALIGN_DOWN((uint64_t) data, BLOCK));
                r = add_blocks(&s, fd, done, MIN((uint64_t) st.st_size, ALIGN_UP((uint64_t) hole, BLOCK)));
                if (r < 0)
                        return r;
                done = ALIGN_UP((uint64_t) hole, BLOCK);
        }
        hash_finish(&s, ret);
        return 0;
}
