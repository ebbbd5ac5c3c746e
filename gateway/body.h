/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What clients send as JSON: parsed strictly, and read by name and type. Unknown fields are let be, null is as absent;
 * a wrong one is told in E2B's words. Pure; the objects are json-c's. */

#include <json-c/json.h>
#include <stdint.h>

#include "base/macros.h"

typedef struct ErrorText {
        char text[256];
} ErrorText;

/* -EINVAL with error set. */
int error_text(ErrorText *e, const char *format, ...) _printf_(2, 3);

/* About what parsing one takes of memory. One that takes more is not parsed. */
#define BODY_COST_MAX (4U * 1024U * 1024U)
size_t body_cost(const char *text, size_t size);
/* An object; *ret is NULL without a body. -EINVAL with error. */
int body_parse(const char *text, size_t size, json_object **ret, ErrorText *error);

/* Each: 1 and *ret, which is borrowed; 0: absent or null; -EINVAL with error. o may be NULL. No string has a NUL in it. */
int field_string(json_object *o, const char *name, const char **ret, ErrorText *error);
int field_bool(json_object *o, const char *name, bool *ret, ErrorText *error);
/* A whole number. */
int field_int(json_object *o, const char *name, int64_t *ret, ErrorText *error);
int field_object(json_object *o, const char *name, json_object **ret, ErrorText *error);
/* Of strings. */
int field_strings(json_object *o, const char *name, json_object **ret, ErrorText *error);
/* Of strings, each at a name. */
int field_string_map(json_object *o, const char *name, json_object **ret, ErrorText *error);
/* As 0 and 1 of the others: whether there is something in it. */
bool field_given(json_object *o, const char *name);
