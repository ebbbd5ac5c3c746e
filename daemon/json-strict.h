/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reading JSON that has to be exactly as it should be: every key known, every value of its type
 * and within its bounds, else -EBADMSG. Text comes from files that an admin may have touched and
 * from unprivileged children that have read hostile input. */

#include <json-c/json.h>
#include <stdint.h>

#include "base/macros.h"

static inline void json_putp(json_object **o) {
        if (*o)
                json_object_put(*o);
}
#define _cleanup_json_ _cleanup_(json_putp)

/* One object, with nothing behind it but white space; at most 8 levels deep. */
int json_parse_strict(const char *text, size_t size, json_object **ret);

/* Refuses keys that are not in the NULL-terminated list. */
int json_check_keys(json_object *o, const char *const *known);

/* The member's value, borrowed; -EBADMSG when it is absent or of another type. */
int json_get(json_object *o, const char *key, enum json_type type, json_object **ret);
int json_get_u64(json_object *o, const char *key, uint64_t min, uint64_t max, uint64_t *ret);
/* Borrowed; no NUL or other control characters inside. */
int json_get_string(json_object *o, const char *key, size_t max, const char **ret);
/* A copy; *ret stays NULL when there is no such key. */
int json_dup_optional(json_object *o, const char *key, size_t max, char **ret);

/* Numbers that all have to be there. */
typedef struct JsonNumber {
        const char *key;
        uint64_t min, max, *field;
} JsonNumber;
int json_get_numbers(json_object *o, const JsonNumber *numbers, size_t n);

/* json_object_object_add(), but an error when there is no memory; takes over the value. */
int json_add(json_object *o, const char *key, json_object *value);
int json_add_u64(json_object *o, const char *key, uint64_t value);
int json_add_string(json_object *o, const char *key, const char *value);
