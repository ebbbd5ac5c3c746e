/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "base/parse.h"
#include "ctl/ctl.h"
#include "ctl/properties.h"
#include "ctl/text.h"

static int read_labels(sd_bus_message *m, json_object **ret) {
        json_object *o = json_object_new_object();
        const char *key, *value;

        int r = sd_bus_message_enter_container(m, 'a', "{ss}");
        while (r >= 0 && (r = sd_bus_message_read(m, "{ss}", &key, &value)) > 0)
                if (json_object_object_add(o, key, json_object_new_string(value)) < 0)
                        r = -ENOMEM;
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r < 0) {
                json_object_put(o);
                return r;
        }
        *ret = o;
        return 0;
}

static int read_strings(sd_bus_message *m, json_object **ret) {
        json_object *l = json_object_new_array();
        const char *s;

        int r = sd_bus_message_enter_container(m, 'a', "s");
        while (r >= 0 && (r = sd_bus_message_read_basic(m, 's', &s)) > 0)
                if (json_object_array_add(l, json_object_new_string(s)) < 0)
                        r = -ENOMEM;
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r < 0) {
                json_object_put(l);
                return r;
        }
        *ret = l;
        return 0;
}

/* The types that our properties have; others become null. */
static int read_value(sd_bus_message *m, const char *type, json_object **ret) {
        const char *s;
        uint64_t t;
        uint32_t u;
        int b, r;

        *ret = NULL;
        if (streq(type, "s") || streq(type, "o")) {
                r = sd_bus_message_read_basic(m, *type, &s);
                if (r >= 0)
                        *ret = json_object_new_string(s);
        } else if (streq(type, "u")) {
                r = sd_bus_message_read_basic(m, 'u', &u);
                if (r >= 0)
                        *ret = json_object_new_uint64(u);
        } else if (streq(type, "t")) {
                r = sd_bus_message_read_basic(m, 't', &t);
                if (r >= 0)
                        *ret = json_object_new_uint64(t);
        } else if (streq(type, "b")) {
                r = sd_bus_message_read_basic(m, 'b', &b);
                if (r >= 0)
                        *ret = json_object_new_boolean(b);
        } else if (streq(type, "a{ss}"))
                r = read_labels(m, ret);
        else if (streq(type, "as"))
                r = read_strings(m, ret);
        else if (streq(type, "a{sv}"))
                r = properties_read(m, ret);
        else
                r = sd_bus_message_skip(m, type);
        return r;
}

static int read_property(sd_bus_message *m, json_object *o) {
        const char *name, *type;
        json_object *value;

        int r = sd_bus_message_read_basic(m, 's', &name);
        if (r >= 0)
                r = sd_bus_message_peek_type(m, NULL, &type);
        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'v', type);
        if (r >= 0)
                r = read_value(m, type, &value);
        if (r < 0)
                return r;
        if (json_object_object_add(o, name, value) < 0) {
                json_object_put(value);
                return -ENOMEM;
        }
        return sd_bus_message_exit_container(m);
}

int properties_read(sd_bus_message *m, json_object **ret) {
        json_object *o = json_object_new_object();
        int r = o ? sd_bus_message_enter_container(m, 'a', "{sv}") : -ENOMEM;

        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = read_property(m, o);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r < 0) {
                json_object_put(o);
                return r;
        }
        *ret = o;
        return 0;
}

int properties_get(sd_bus *bus, const char *path, const char *interface, json_object **ret, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;

        int r = ctl_call(bus, "Asking cubed", path, "org.freedesktop.DBus.Properties", "GetAll", &reply, error, "s",
                         interface);
        return r < 0 ? r : properties_read(reply, ret);
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
