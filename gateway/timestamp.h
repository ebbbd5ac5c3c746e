/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* RFC 3339 and microseconds since 1970. */

#include <stdint.h>

#define TIMESTAMP_MAX 40U

/* UTC, with microseconds; "infinity" is the end of the year 9999. */
const char *timestamp_format(char buf[static TIMESTAMP_MAX], uint64_t usec);
/* With any fraction, of which microseconds count, and Z or an offset. -EINVAL. */
int timestamp_parse(const char *s, uint64_t *ret);
