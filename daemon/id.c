/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/random.h>

#include "base/macros.h"
#include "daemon/id.h"

#define ID_LEN 16U

void id_random(char ret[static ID_SIZE]) {
        static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789";
        uint8_t bytes[128];
        size_t n = 0;

        while (n < ID_LEN) {
                /* Up to 256 bytes come whole and without waiting once the system is seeded. */
                if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
                        abort();
                for (size_t i = 0; i < sizeof(bytes) && n < ID_LEN; i++) {
                        size_t k = n == 0 ? 26 : 36;
                        /* Without the tail that would favour the first letters. */
                        if (bytes[i] < 256 / k * k)
                                ret[n++] = set[bytes[i] % k];
                }
        }
        ret[ID_LEN] = 0;
}
