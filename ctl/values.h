/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Arguments of options that more than one verb has. Each returns 1, or negative once it was said what is wrong. */

#include <stdint.h>

int value_size(const char *option, const char *s, uint64_t *ret);
/* UINT64_MAX: infinity */
int value_time(const char *option, const char *s, uint64_t *ret);
int value_cpus(const char *s, uint32_t *ret);
int value_cpu_quota(const char *s, uint64_t *ret);
/* NAME[:TAG] */
int value_template_name(const char *s);
