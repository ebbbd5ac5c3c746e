/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>

#include "base/parse.h"
#include "base/utf8.h"
#include "guest/json.h"

#define DEPTH_MAX 32
#define REPLACEMENT "\xef\xbf\xbd"
#define KEY_MAX_SIZE 64

json_object *json_new_text(const char *text) {
        size_t left = strlen(text), n = 0;

        /* Each byte may become three. */
        _cleanup_free_ char *out = malloc(left * 3 + 1);
        if (!out)
                return NULL;
        for (const uint8_t *p = (const uint8_t *) text; left > 0;) {
                size_t size = utf8_sequence(p, left);
                if (size > 0)
                        memcpy(out + n, p, size);
                else
                        memcpy(out + n, REPLACEMENT, 3);
                n += size > 0 ? size : 3;
                p += MAX(size, (size_t) 1);
                left -= MAX(size, (size_t) 1);
        }
        return json_object_new_string_len(out, (int) n);
}

void json_put(json_object *o, const char *key, json_object *value) {
        if (!o || !value || json_object_object_add(o, key, value) < 0)
                json_object_put(value);
}

void json_put_text(json_object *o, const char *key, const char *text) {
        json_put(o, key, json_new_text(text));
}

void json_put_int(json_object *o, const char *key, int64_t value) {
        json_put(o, key, json_object_new_int64(value));
}

const char *json_text(json_object *o) {
        const char *text = o ? json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN|JSON_C_TO_STRING_NOSLASHESCAPE) : NULL;
        return text ? text : "{}";
}

static void tokener_freep(json_tokener **t) {
        if (*t)
                json_tokener_free(*t);
}

int json_parse(const void *data, size_t size, json_object **ret) {
        _cleanup_(tokener_freep) json_tokener *t = json_tokener_new_ex(DEPTH_MAX);
        _cleanup_json_ json_object *o = NULL;

        if (!t || size > INT32_MAX)
                return t ? -EBADMSG : -ENOMEM;
        json_tokener_set_flags(t, JSON_TOKENER_STRICT|JSON_TOKENER_VALIDATE_UTF8|JSON_TOKENER_ALLOW_TRAILING_CHARS);
        o = json_tokener_parse_ex(t, data, (int) size);
        if (json_tokener_get_error(t) != json_tokener_success || !json_object_is_type(o, json_type_object))
                return -EBADMSG;
        for (size_t i = json_tokener_get_parse_end(t); i < size; i++)
                if (!memchr(" \t\r\n", ((const char *) data)[i], 4))
                        return -EBADMSG;
        *ret = TAKE_PTR(o);
        return 0;
}

static json_object *find(json_object *o, const char *key) {
        char snake[KEY_MAX_SIZE];
        json_object *value;
        size_t n = 0;

        if (json_object_object_get_ex(o, key, &value))
                return value;
        for (const char *p = key; *p && n + 2 < sizeof(snake); p++) {
                if (isupper((unsigned char) *p))
                        snake[n++] = '_';
                snake[n++] = (char) tolower((unsigned char) *p);
        }
        snake[n] = 0;
        return json_object_object_get_ex(o, snake, &value) ? value : NULL;
}

static int get(json_object *o, const char *key, json_type type, json_object **ret) {
        json_object *value = find(o, key);

        if (!value)
                return 0;
        if (!json_object_is_type(value, type))
                return -EBADMSG;
        *ret = value;
        return 1;
}

int json_get_object(json_object *o, const char *key, json_object **ret) {
        return get(o, key, json_type_object, ret);
}

int json_get_array(json_object *o, const char *key, json_object **ret) {
        return get(o, key, json_type_array, ret);
}

int json_get_text(json_object *o, const char *key, const char **ret) {
        json_object *value;

        int r = get(o, key, json_type_string, &value);
        if (r <= 0)
                return r;
        *ret = json_object_get_string(value);
        return strlen(*ret) == (size_t) json_object_get_string_len(value) ? 1 : -EBADMSG;
}

int json_get_bool(json_object *o, const char *key, bool *ret) {
        json_object *value;

        int r = get(o, key, json_type_boolean, &value);
        if (r > 0)
                *ret = json_object_get_boolean(value);
        return r;
}

int json_get_u32(json_object *o, const char *key, uint32_t *ret) {
        json_object *value = find(o, key);

        if (!value)
                return 0;
        if (json_object_is_type(value, json_type_string))
                return parse_u32(json_object_get_string(value), ret) < 0 ? -EBADMSG : 1;
        if (!json_object_is_type(value, json_type_int))
                return -EBADMSG;
        int64_t n = json_object_get_int64(value);
        if (n < 0 || n > UINT32_MAX)
                return -EBADMSG;
        *ret = (uint32_t) n;
        return 1;
}
