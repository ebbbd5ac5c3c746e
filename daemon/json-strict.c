/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>

#include "daemon/json-strict.h"

#define JSON_DEPTH_MAX 8

static inline void json_tokener_freep(json_tokener **t) {
        if (*t)
                json_tokener_free(*t);
}

int json_parse_strict(const char *text, size_t size, json_object **ret) {
        _cleanup_(json_tokener_freep) json_tokener *t = json_tokener_new_ex(JSON_DEPTH_MAX);
        _cleanup_json_ json_object *o = NULL;
        size_t end;

        if (!t)
                return -ENOMEM;
        if (size > INT_MAX)
                return -EBADMSG;

        /* JSON_TOKENER_STRICT would refuse the newline at the end as well. */
        json_tokener_set_flags(t, JSON_TOKENER_VALIDATE_UTF8);
        o = json_tokener_parse_ex(t, text, (int) size);
        if (!o || json_tokener_get_error(t) != json_tokener_success)
                return -EBADMSG;
        if (!json_object_is_type(o, json_type_object))
                return -EBADMSG;

        end = json_tokener_get_parse_end(t);
        for (; end < size; end++)
                if (!strchr(" \t\r\n", text[end]) || !text[end])
                        return -EBADMSG;

        *ret = TAKE_PTR(o);
        return 0;
}

int json_check_keys(json_object *o, const char *const *known) {
        json_object_object_foreach(o, key, value) {
                const char *const *k = known;
                (void) value;
                while (*k && !streq(*k, key))
                        k++;
                if (!*k)
                        return -EBADMSG;
        }
        return 0;
}

int json_get(json_object *o, const char *key, enum json_type type, json_object **ret) {
        json_object *v = NULL;

        if (!json_object_object_get_ex(o, key, &v) || !json_object_is_type(v, type))
                return -EBADMSG;
        *ret = v;
        return 0;
}

int json_get_u64(json_object *o, const char *key, uint64_t min, uint64_t max, uint64_t *ret) {
        json_object *v;
        uint64_t u;
        int r = json_get(o, key, json_type_int, &v);
        if (r < 0)
                return r;

        /* A negative number would come out as 0. */
        if (json_object_get_int64(v) < 0)
                return -EBADMSG;
        u = json_object_get_uint64(v);
        if (u < min || u > max)
                return -EBADMSG;
        *ret = u;
        return 0;
}

int json_get_string(json_object *o, const char *key, size_t max, const char **ret) {
        json_object *v;
        const char *s;
        size_t n;
        int r = json_get(o, key, json_type_string, &v);
        if (r < 0)
                return r;

        s = json_object_get_string(v);
        n = (size_t) json_object_get_string_len(v);
        if (n > max)
                return -EBADMSG;
        for (size_t i = 0; i < n; i++)
                if ((unsigned char) s[i] < ' ' || s[i] == 0x7f)
                        return -EBADMSG;
        *ret = s;
        return 0;
}

int json_dup_optional(json_object *o, const char *key, size_t max, char **ret) {
        const char *value;

        if (!json_object_object_get_ex(o, key, NULL))
                return 0;
        int r = json_get_string(o, key, max, &value);
        if (r < 0)
                return r;
        *ret = strdup(value);
        return *ret ? 0 : -ENOMEM;
}

int json_get_numbers(json_object *o, const JsonNumber *numbers, size_t n) {
        for (size_t i = 0; i < n; i++) {
                int r = json_get_u64(o, numbers[i].key, numbers[i].min, numbers[i].max, numbers[i].field);
                if (r < 0)
                        return r;
        }
        return 0;
}

int json_add(json_object *o, const char *key, json_object *value) {
        if (!value)
                return -ENOMEM;
        if (json_object_object_add(o, key, value) < 0) {
                json_object_put(value);
                return -ENOMEM;
        }
        return 0;
}

int json_add_u64(json_object *o, const char *key, uint64_t value) {
        return json_add(o, key, json_object_new_uint64(value));
}

int json_add_string(json_object *o, const char *key, const char *value) {
        return json_add(o, key, json_object_new_string(value));
}
