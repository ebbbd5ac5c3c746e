/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the agent says and is told in JSON. Texts of the guest may be any bytes: what is no UTF-8 in them becomes U+FFFD, so that
 * what leaves is JSON. Without memory fields are left out; json_text() then says "{}". */

#include <json-c/json.h>

#include "base/macros.h"

static inline void json_putp(json_object **o) {
        json_object_put(*o);
}
#define _cleanup_json_ _cleanup_(json_putp)

void json_put_text(json_object *o, const char *key, const char *text);
void json_put_int(json_object *o, const char *key, int64_t value);
/* Takes the value. */
void json_put(json_object *o, const char *key, json_object *value);
json_object *json_new_text(const char *text);
/* Lives as long as o does and is not changed. */
const char *json_text(json_object *o);

/* The whole of data, one object: -EBADMSG for anything else. */
int json_parse(const void *data, size_t size, json_object **ret);

/* Members of an object; one that is null counts as not there. Protocol buffers' JSON names a field in camelCase, and takes
 * snake_case too. -EBADMSG: there and of another type, 0: not there, 1: there. */
int json_get_object(json_object *o, const char *key, json_object **ret);
int json_get_array(json_object *o, const char *key, json_object **ret);
/* Without a NUL in it. */
int json_get_text(json_object *o, const char *key, const char **ret);
int json_get_bool(json_object *o, const char *key, bool *ret);
/* Numbers may be written as text. */
int json_get_u32(json_object *o, const char *key, uint32_t *ret);
