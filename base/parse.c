/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/parse.h"

static int parse_digits(const char **s, uint64_t *ret) {
        const char *p = *s;
        uint64_t v = 0;

        if (!isdigit((unsigned char) *p))
                return -EINVAL;
        for (; isdigit((unsigned char) *p); p++)
                if (__builtin_mul_overflow(v, 10, &v) ||
                    __builtin_add_overflow(v, (uint64_t) (*p - '0'), &v))
                        return -ERANGE;
        *s = p;
        *ret = v;
        return 0;
}

/* A number with an optional decimal fraction, in millionths: 1.5 -> whole 1, micro 500000. */
static int parse_decimal(const char **s, uint64_t *ret_whole, uint32_t *ret_micro) {
        uint32_t micro = 0, scale = 100000;
        int r = parse_digits(s, ret_whole);
        if (r < 0)
                return r;

        if (**s == '.') {
                (*s)++;
                if (!isdigit((unsigned char) **s))
                        return -EINVAL;
                for (; isdigit((unsigned char) **s); (*s)++) {
                        micro += (uint32_t) (**s - '0') * scale;
                        scale /= 10;
                }
        }
        *ret_micro = micro;
        return 0;
}

static int scale_decimal(uint64_t whole, uint32_t micro, uint64_t unit, uint64_t *ret) {
        uint64_t v;

        if (__builtin_mul_overflow(whole, unit, &v))
                return -ERANGE;
        unsigned __int128 fraction = (unsigned __int128) unit * micro / 1000000U;
        if (__builtin_add_overflow(v, (uint64_t) fraction, &v))
                return -ERANGE;
        *ret = v;
        return 0;
}

int parse_u64(const char *s, uint64_t *ret) {
        uint64_t v;

        assert(s);
        assert(ret);

        int r = parse_digits(&s, &v);
        if (r < 0)
                return r;
        if (*s)
                return -EINVAL;
        *ret = v;
        return 0;
}

int parse_u32(const char *s, uint32_t *ret) {
        uint64_t v;
        int r = parse_u64(s, &v);
        if (r < 0)
                return r;
        if (v > UINT32_MAX)
                return -ERANGE;
        *ret = (uint32_t) v;
        return 0;
}

int parse_size(const char *s, uint64_t *ret) {
        static const char units[] = "KMGT";
        uint64_t whole, unit = 1;
        uint32_t micro;

        assert(s);
        assert(ret);

        int r = parse_decimal(&s, &whole, &micro);
        if (r < 0)
                return r;

        const char *u = *s ? strchr(units, toupper((unsigned char) *s)) : NULL;
        if (u) {
                unit = UINT64_C(1) << (10 * (u - units + 1));
                s++;
                if (*s == 'i')
                        s++;
        }
        if (*s == 'B')
                s++;
        if (*s)
                return -EINVAL;

        return scale_decimal(whole, micro, unit, ret);
}

static const struct {
        const char *name;
        uint64_t usec;
} time_units[] = {
        { "us", 1 },
        { "usec", 1 },
        { "ms", USEC_PER_MSEC },
        { "msec", USEC_PER_MSEC },
        { "s", USEC_PER_SEC },
        { "sec", USEC_PER_SEC },
        { "m", 60 * USEC_PER_SEC },
        { "min", 60 * USEC_PER_SEC },
        { "h", 3600 * USEC_PER_SEC },
        { "hour", 3600 * USEC_PER_SEC },
        { "d", 86400 * USEC_PER_SEC },
        { "day", 86400 * USEC_PER_SEC },
        { "", USEC_PER_SEC },
};

static int parse_time_unit(const char **s, uint64_t *ret) {
        size_t n = 0;
        while (isalpha((unsigned char) (*s)[n]))
                n++;

        for (size_t i = 0; i < ELEMENTSOF(time_units); i++)
                if (strlen(time_units[i].name) == n && memcmp(time_units[i].name, *s, n) == 0) {
                        *s += n;
                        *ret = time_units[i].usec;
                        return 0;
                }
        return -EINVAL;
}

int parse_usec(const char *s, uint64_t *ret) {
        uint64_t sum = 0;

        assert(s);
        assert(ret);

        if (streq(s, "infinity")) {
                *ret = UINT64_MAX;
                return 0;
        }

        do {
                uint64_t whole, unit, part;
                uint32_t micro;

                int r = parse_decimal(&s, &whole, &micro);
                if (r < 0)
                        return r;
                while (*s == ' ')
                        s++;
                r = parse_time_unit(&s, &unit);
                if (r < 0)
                        return r;
                r = scale_decimal(whole, micro, unit, &part);
                if (r < 0)
                        return r;
                if (__builtin_add_overflow(sum, part, &sum) || sum == UINT64_MAX)
                        return -ERANGE;
                while (*s == ' ')
                        s++;
        } while (*s);

        *ret = sum;
        return 0;
}

int parse_bool(const char *s) {
        static const char *const yes[] = { "1", "yes", "true", "on" }, *const no[] = { "0", "no", "false", "off" };

        assert(s);

        for (size_t i = 0; i < ELEMENTSOF(yes); i++) {
                if (streq(s, yes[i]))
                        return 1;
                if (streq(s, no[i]))
                        return 0;
        }
        return -EINVAL;
}

int parse_cpu_quota(const char *s, uint64_t *ret) {
        uint64_t whole, v;
        uint32_t micro;

        assert(s);
        assert(ret);

        int r = parse_decimal(&s, &whole, &micro);
        if (r < 0)
                return r;
        if (!streq(s, "%"))
                return -EINVAL;
        r = scale_decimal(whole, micro, USEC_PER_SEC / 100, &v);
        if (r < 0)
                return r;
        if (v == 0)
                return -ERANGE;
        *ret = v;
        return 0;
}

bool sandbox_id_valid(const char *s) {
        if (!s || *s < 'a' || *s > 'z')
                return false;

        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");
        return s[n] == 0 && n >= 12 && n <= 20;
}

bool template_name_valid(const char *s) {
        if (!s || !isalnum((unsigned char) *s))
                return false;

        size_t n = 0;
        for (; s[n]; n++)
                if (!isalnum((unsigned char) s[n]) && !strchr("._-", s[n]))
                        return false;
        return n <= 63;
}

bool env_assignment_valid(const char *s) {
        if (!s || isdigit((unsigned char) *s))
                return false;

        size_t n = 0;
        while (isalnum((unsigned char) s[n]) || s[n] == '_')
                n++;
        return n > 0 && s[n] == '=';
}

char *format_size(char buf[static FORMAT_SIZE_MAX], uint64_t bytes) {
        static const char *const units[] = { "B", "K", "M", "G", "T" };
        uint64_t unit = 1;
        size_t i = 0;

        while (i + 1 < ELEMENTSOF(units) && bytes / unit >= 1024) {
                unit <<= 10;
                i++;
        }

        uint64_t tenths = unit > 1 ? bytes % unit * 10 / unit : 0;
        if (tenths > 0)
                snprintf(buf, FORMAT_SIZE_MAX, "%" PRIu64 ".%" PRIu64 "%s", bytes / unit, tenths, units[i]);
        else
                snprintf(buf, FORMAT_SIZE_MAX, "%" PRIu64 "%s", bytes / unit, units[i]);
        return buf;
}

char *format_usec(char buf[static FORMAT_USEC_MAX], uint64_t usec) {
        static const struct {
                const char *name;
                uint64_t usec;
        } table[] = {
                { "d", 86400 * USEC_PER_SEC },
                { "h", 3600 * USEC_PER_SEC },
                { "min", 60 * USEC_PER_SEC },
                { "s", USEC_PER_SEC },
                { "ms", USEC_PER_MSEC },
                { "us", 1 },
        };
        size_t n = 0;
        unsigned parts = 0;

        if (usec == UINT64_MAX)
                return strcpy(buf, "infinity");
        if (usec == 0)
                return strcpy(buf, "0");

        for (size_t i = 0; i < ELEMENTSOF(table) && parts < 2; i++) {
                uint64_t v = usec / table[i].usec;
                if (v == 0)
                        continue;
                n += (size_t) snprintf(buf + n, FORMAT_USEC_MAX - n, "%s%" PRIu64 "%s", parts ? " " : "", v,
                                       table[i].name);
                usec %= table[i].usec;
                parts++;
        }
        return buf;
}
