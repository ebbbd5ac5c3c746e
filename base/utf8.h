/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Characters in UTF-8, of bytes that may be anything. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define UTF8_MAX 4U

/* Bytes of the valid sequence at p, of at least one byte that is left; 0 when there is none. Surrogates, overlong forms and
 * a NUL are not valid. */
size_t utf8_sequence(const uint8_t *p, size_t left);
/* How many bytes one that begins like this has, 0 for what can't begin one. */
size_t utf8_length(uint8_t first);
/* Whether the valid sequence of n bytes at p is one of those that Unicode has for internal use. JSON does not forbid them. */
bool utf8_is_noncharacter(const uint8_t *p, size_t n);
/* libsystemd puts a string on the bus if it is UTF-8 without noncharacters. With any other the whole message fails. */
bool text_fits_bus(const char *s);
