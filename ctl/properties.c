/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/properties.h"
#include "ctl/text.h"

int properties_get(sd_bus *bus, const char *path, const char *interface, json_object **ret, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;

        int r = ctl_call(bus, "Asking cubed", path, "org.freedesktop.DBus.Properties", "GetAll", &reply, error, "s",
                         interface);
        return r < 0 ? r : bus_to_json(reply, ret);
}

static bool wanted(const char *name) {
        char **l = ctl_options.properties;
        if (!l)
                return true;
        for (; *l; l++)
                if (streq(*l, name))
                        return true;
        return false;
}

static bool has_suffix(const char *s, const char *suffix) {
        size_t n = strlen(s), k = strlen(suffix);
        return n >= k && streq(s + n - k, suffix);
}

static void print_number(const char *name, uint64_t v) {
        char when[TEXT_TIME_MAX], span[FORMAT_USEC_MAX];

        if (has_suffix(name, "Timestamp") || streq(name, "Deadline"))
                printf("%s", v == UINT64_MAX ? "infinity" : text_timestamp(when, v));
        else if (startswith(name, "Network") && has_suffix(name, "Max") && (v == UINT64_MAX || v == UINT32_MAX))
                printf("infinity");
        else if (has_suffix(name, "USec"))
                printf("%s", format_usec(span, v));
        else
                printf("%" PRIu64, v);
}

static void print_text(const char *s) {
        _cleanup_free_ char *text = text_printable(s, strlen(s), false);
        fputs(strempty(text), stdout);
}

static void print_member(const char *key, json_object *v, bool *first, const char *separator) {
        fputs(*first ? "" : separator, stdout);
        print_text(key);
        putchar('=');
        print_text(strempty(json_object_get_string(v)));
        *first = false;
}

/* Rules of a policy have blanks in them, and there may be several of a list. */
static void print_object(json_object *o) {
        bool first = true, lists = false;

        json_object_object_foreach(o, k, v)
                lists |= k && json_object_is_type(v, json_type_array);
        json_object_object_foreach(o, key, member) {
                if (!json_object_is_type(member, json_type_array)) {
                        print_member(key, member, &first, lists ? "; " : " ");
                        continue;
                }
                for (size_t i = 0; i < json_object_array_length(member); i++)
                        print_member(key, json_object_array_get_idx(member, i), &first, "; ");
        }
}

static void print_array(json_object *o) {
        for (size_t i = 0; i < json_object_array_length(o); i++) {
                fputs(i > 0 ? " " : "", stdout);
                print_text(strempty(json_object_get_string(json_object_array_get_idx(o, i))));
        }
}

static void print_value(const char *name, json_object *v) {
        switch (json_object_get_type(v)) {
        case json_type_int:
                print_number(name, json_object_get_uint64(v));
                break;
        case json_type_object:
                print_object(v);
                break;
        case json_type_array:
                print_array(v);
                break;
        case json_type_boolean:
                fputs(json_object_get_boolean(v) ? "yes" : "no", stdout);
                break;
        default:
                print_text(strempty(json_object_get_string(v)));
        }
}

int properties_print(json_object *o) {
        json_object_object_foreach(o, name, v) {
                if (!wanted(name))
                        continue;
                if (!ctl_options.value)
                        printf("%s=", name);
                print_value(name, v);
                putchar('\n');
        }
        return ferror(stdout) ? -EIO : 0;
}

json_object *properties_select(json_object *o) {
        json_object *copy = json_object_new_object();
        if (!copy)
                return NULL;

        json_object_object_foreach(o, name, v)
                if (wanted(name))
                        (void) json_object_object_add(copy, name, json_object_get(v));
        return copy;
}

const char *properties_string(json_object *o, const char *name) {
        json_object *v;
        return json_object_object_get_ex(o, name, &v) ? strempty(json_object_get_string(v)) : "";
}

uint64_t properties_u64(json_object *o, const char *name) {
        json_object *v;
        return json_object_object_get_ex(o, name, &v) ? json_object_get_uint64(v) : 0;
}
