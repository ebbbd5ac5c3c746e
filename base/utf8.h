/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Characters in UTF-8, of bytes that may be anything. */

#include <stdint.h>
#include <sys/types.h>

#define UTF8_MAX 4U

/* Bytes of the valid sequence at p, of at least one byte that is left; 0 when there is none. Surrogates, overlong forms and
 * a NUL are not valid. */
size_t utf8_sequence(const uint8_t *p, size_t left);
/* How many bytes one that begins like this has, 0 for what can't begin one. */
size_t utf8_length(uint8_t first);
