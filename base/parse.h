/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Text to numbers, as people write them in configuration files and on command lines. */

#include <stdint.h>

#include "base/macros.h"

/* Decimal only, no sign, no blanks. -EINVAL, -ERANGE. */
int parse_u64(const char *s, uint64_t *ret);
int parse_u32(const char *s, uint32_t *ret);
/* "512M", "1.5G", "4096"; K M G T are powers of 1024, an "iB" or "B" behind them is allowed. Bytes. */
int parse_size(const char *s, uint64_t *ret);
/* "30", "30s", "5min", "1h 30min", "250ms", "infinity" (UINT64_MAX). A bare number is seconds. */
int parse_usec(const char *s, uint64_t *ret);
/* yes/no, true/false, on/off, 1/0 */
int parse_bool(const char *s);
/* "50%" -> 500000 (microseconds of CPU per second of time) */
int parse_cpu_quota(const char *s, uint64_t *ret);

/* [a-z][a-z0-9]{11,19} */
bool sandbox_id_valid(const char *s);
/* [a-zA-Z0-9][a-zA-Z0-9._-]{0,62} */
bool template_name_valid(const char *s);
/* NAME=VALUE with a sane name */
bool env_assignment_valid(const char *s);

#define FORMAT_SIZE_MAX 48
#define FORMAT_USEC_MAX 64
char *format_size(char buf[static FORMAT_SIZE_MAX], uint64_t bytes);
char *format_usec(char buf[static FORMAT_USEC_MAX], uint64_t usec);
