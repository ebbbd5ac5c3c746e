/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/utf8.h"

size_t utf8_length(uint8_t first) {
        return first < 0x80 ? 1 : (first & 0xe0) == 0xc0 ? 2 : (first & 0xf0) == 0xe0 ? 3 : (first & 0xf8) == 0xf0 ? 4 : 0;
}

size_t utf8_sequence(const uint8_t *p, size_t left) {
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        size_t n = utf8_length(*p);

        if (n == 0 || n > left || *p == 0)
                return 0;
        if (n == 1)
                return 1;

        uint32_t c = *p & (0x7fU >> n);
        for (size_t i = 1; i < n; i++) {
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
                c = c << 6 | (p[i] & 0x3fU);
        }
        if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
                return 0;
        return n;
}

bool utf8_is_noncharacter(const uint8_t *p, size_t n) {
        if (n == 3)
                return p[0] == 0xef && ((p[1] == 0xb7 && p[2] >= 0x90 && p[2] <= 0xaf) || (p[1] == 0xbf && p[2] >= 0xbe));
        return n == 4 && (p[1] & 0x0f) == 0x0f && p[2] == 0xbf && p[3] >= 0xbe;
}

bool text_fits_bus(const char *s) {
        const uint8_t *p = (const uint8_t *) s;

        for (size_t left = strlen(s), n; left > 0; p += n, left -= n) {
                n = utf8_sequence(p, left);
                if (n == 0 || utf8_is_noncharacter(p, n))
                        return false;
        }
        return true;
}
