/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <time.h>

#include "base/macros.h"
#include "gateway/timestamp.h"

/* 9999-12-31T23:59:59 */
#define LAST_SECOND 253402300799ULL

const char *timestamp_format(char buf[static TIMESTAMP_MAX], uint64_t usec) {
        time_t t = (time_t) MIN(usec / USEC_PER_SEC, LAST_SECOND);
        struct tm tm;

        (void) gmtime_r(&t, &tm);
        size_t n = strftime(buf, TIMESTAMP_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
        (void) snprintf(buf + n, TIMESTAMP_MAX - n, ".%06uZ", (unsigned) (usec % USEC_PER_SEC));
        return buf;
}

/* *at is behind it. */
static int read_digits(const char **at, unsigned n, int *ret) {
        *ret = 0;
        for (unsigned i = 0; i < n; i++, (*at)++) {
                if (!isdigit((unsigned char) **at))
                        return -EINVAL;
                *ret = *ret * 10 + (**at - '0');
        }
        return 0;
}

static int read_mark(const char **at, const char *marks) {
        if (!**at || !strchr(marks, **at))
                return -EINVAL;
        (*at)++;
        return 0;
}

static int read_fraction(const char **at, uint64_t *ret) {
        uint64_t unit = USEC_PER_SEC / 10;

        *ret = 0;
        if (**at != '.')
                return 0;
        (*at)++;
        if (!isdigit((unsigned char) **at))
                return -EINVAL;
        for (; isdigit((unsigned char) **at); (*at)++, unit /= 10)
                *ret += unit * (uint64_t) (**at - '0');
        return 0;
}

static int read_offset(const char **at, int *ret_seconds) {
        char sign = **at;
        int hours, minutes;

        *ret_seconds = 0;
        if (sign == 'Z' || sign == 'z') {
                (*at)++;
                return 0;
        }
        int r = read_mark(at, "+- "); /* a '+' of a query that was not encoded */
        if (r >= 0)
                r = read_digits(at, 2, &hours);
        if (r >= 0)
                r = read_mark(at, ":");
        if (r >= 0)
                r = read_digits(at, 2, &minutes);
        if (r < 0 || hours > 23 || minutes > 59)
                return -EINVAL;
        *ret_seconds = (hours * 60 + minutes) * 60 * (sign == '-' ? -1 : 1);
        return 0;
}

int timestamp_parse(const char *s, uint64_t *ret) {
        int v[6], offset = 0, r = 0;
        uint64_t fraction = 0;
        static const struct {
                unsigned digits;
                const char *mark;
        } parts[] = { { 4, "-" }, { 2, "-" }, { 2, "Tt " }, { 2, ":" }, { 2, ":" }, { 2, NULL } };

        for (size_t i = 0; r >= 0 && i < ELEMENTSOF(parts); i++) {
                r = read_digits(&s, parts[i].digits, &v[i]);
                if (r >= 0 && parts[i].mark)
                        r = read_mark(&s, parts[i].mark);
        }
        if (r >= 0)
                r = read_fraction(&s, &fraction);
        if (r >= 0)
                r = read_offset(&s, &offset);
        if (r < 0 || *s || v[1] < 1 || v[1] > 12 || v[2] < 1 || v[2] > 31 || v[3] > 23 || v[4] > 59 || v[5] > 60)
                return -EINVAL;

        struct tm tm = {
                .tm_year = v[0] - 1900, .tm_mon = v[1] - 1, .tm_mday = v[2], .tm_hour = v[3], .tm_min = v[4], .tm_sec = v[5],
        };
        int64_t seconds = (int64_t) timegm(&tm) - offset;
        *ret = seconds < 0 ? 0 : (uint64_t) seconds * USEC_PER_SEC + fraction;
        return 0;
}
