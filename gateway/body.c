/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"
#include "gateway/body.h"

#define DEPTH_MAX 16
#define STRINGS_MAX 4096U
/* What json-c takes for an empty object, and for a member with its name. */
#define CONTAINER_COST 1024U
#define VALUE_COST 192U

int error_text(ErrorText *e, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(e->text, sizeof(e->text), format, ap);
        va_end(ap);
        return -EINVAL;
}

/* json-c 0.16 takes single quotes, NaN and bare control characters in strings for JSON, however strict it is asked to be. */
static bool characters_valid(const char *text, size_t size) {
        bool in_string = false;

        for (size_t i = 0; i < size; i++) {
                unsigned char c = (unsigned char) text[i];
                if (in_string && c == '\\')
                        i++;
                else if (c == '"')
                        in_string = !in_string;
                else if (in_string ? c < 0x20 : !c || !strchr(" \t\r\n{}[]:,.+-0123456789Eabeflnrstu", c))
                        return false;
        }
        return true;
}

size_t body_cost(const char *text, size_t size) {
        bool in_string = false;
        size_t cost = 0;

        for (size_t i = 0; i < size; i++)
                if (in_string && text[i] == '\\')
                        i++;
                else if (text[i] == '"')
                        in_string = !in_string;
                else if (!in_string && (text[i] == '{' || text[i] == '['))
                        cost += CONTAINER_COST;
                else if (!in_string && text[i] == ',')
                        cost += VALUE_COST;
        return cost;
}

/* The tokener waits for more behind null and behind a number, too. */
static const char *why_no_object(const char *text, size_t size, enum json_tokener_error e) {
        size_t i = 0;

        while (i < size && isspace((unsigned char) text[i]))
                i++;
        if (e == json_tokener_continue && i < size && text[i] == '{')
                return "the body ends too early";
        return e == json_tokener_success || e == json_tokener_continue ? "the body is not an object" : json_tokener_error_desc(e);
}

int body_parse(const char *text, size_t size, json_object **ret, ErrorText *error) {
        *ret = NULL;
        if (size == 0)
                return 0;
        if (size > INT32_MAX)
                return error_text(error, "Error when parsing request: the body is too large");
        if (!characters_valid(text, size))
                return error_text(error, "Error when parsing request: the body is not JSON");
        if (body_cost(text, size) > BODY_COST_MAX)
                return error_text(error, "Error when parsing request: the body has too many values");

        json_tokener *t = json_tokener_new_ex(DEPTH_MAX);
        if (!t)
                return -ENOMEM;
        json_tokener_set_flags(t, JSON_TOKENER_STRICT|JSON_TOKENER_VALIDATE_UTF8);
        json_object *o = json_tokener_parse_ex(t, text, (int) size);
        enum json_tokener_error e = json_tokener_get_error(t);
        json_tokener_free(t);

        if (e != json_tokener_success || !json_object_is_type(o, json_type_object)) {
                json_object_put(o);
                return error_text(error, "Error when parsing request: %s", why_no_object(text, size, e));
        }
        *ret = o;
        return 0;
}

static int find(json_object *o, const char *name, json_type type, const char *what, json_object **ret, ErrorText *error) {
        json_object *v;

        if (!o || !json_object_object_get_ex(o, name, &v) || json_object_is_type(v, json_type_null))
                return 0;
        if (!json_object_is_type(v, type))
                return error_text(error, "validation error: field '%s' is not %s", name, what);
        *ret = v;
        return 1;
}

static bool string_whole(json_object *v) {
        return json_object_is_type(v, json_type_string) &&
               strlen(json_object_get_string(v)) == (size_t) json_object_get_string_len(v);
}

int field_string(json_object *o, const char *name, const char **ret, ErrorText *error) {
        json_object *v = NULL;

        int r = find(o, name, json_type_string, "a string", &v, error);
        if (r <= 0)
                return r;
        if (!string_whole(v))
                return error_text(error, "validation error: field '%s' has a NUL in it", name);
        *ret = json_object_get_string(v);
        return 1;
}

int field_bool(json_object *o, const char *name, bool *ret, ErrorText *error) {
        json_object *v = NULL;

        int r = find(o, name, json_type_boolean, "true or false", &v, error);
        if (r > 0)
                *ret = json_object_get_boolean(v);
        return r;
}

int field_int(json_object *o, const char *name, int64_t *ret, ErrorText *error) {
        json_object *v = NULL;

        int r = find(o, name, json_type_int, "a whole number", &v, error);
        if (r > 0)
                *ret = json_object_get_int64(v);
        return r;
}

int field_object(json_object *o, const char *name, json_object **ret, ErrorText *error) {
        return find(o, name, json_type_object, "an object", ret, error);
}

int field_strings(json_object *o, const char *name, json_object **ret, ErrorText *error) {
        int r = find(o, name, json_type_array, "a list of strings", ret, error);

        if (r <= 0)
                return r;
        if (json_object_array_length(*ret) > STRINGS_MAX)
                return error_text(error, "validation error: field '%s' has more than %u entries", name, STRINGS_MAX);
        for (size_t i = 0; i < json_object_array_length(*ret); i++)
                if (!string_whole(json_object_array_get_idx(*ret, i)))
                        return error_text(error, "validation error: field '%s' is not a list of strings", name);
        return 1;
}

int field_string_map(json_object *o, const char *name, json_object **ret, ErrorText *error) {
        int r = field_object(o, name, ret, error);

        if (r <= 0)
                return r;
        json_object_object_foreach(*ret, key, value) {
                if (!string_whole(value))
                        return error_text(error, "validation error: field '%s' is not a map of strings", name);
                if (!text_fits_bus(key) || !text_fits_bus(json_object_get_string(value)))
                        return error_text(error, "validation error: field '%s' has a character that stands for none", name);
        }
        return 1;
}

bool field_given(json_object *o, const char *name) {
        json_object *v;

        if (!o || !json_object_object_get_ex(o, name, &v))
                return false;
        switch (json_object_get_type(v)) {
        case json_type_null:
                return false;
        case json_type_object:
                return json_object_object_length(v) > 0;
        case json_type_array:
                return json_object_array_length(v) > 0;
        case json_type_string:
                return json_object_get_string_len(v) > 0;
        default:
                return true;
        }
}
