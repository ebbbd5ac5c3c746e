/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "dbus/client-json.h"

#define DEPTH_MAX 16U

static int read_value(sd_bus_message *m, unsigned depth, json_object **ret);

static int read_basic(sd_bus_message *m, char type, json_object **ret) {
        union {
                uint8_t y;
                int b, i;
                int16_t n;
                uint16_t q;
                uint32_t u;
                int64_t x;
                uint64_t t;
                double d;
                const char *s;
        } v;

        int r = sd_bus_message_read_basic(m, type, &v);
        if (r <= 0)
                return r < 0 ? r : -ENXIO;
        switch (type) {
        case 's':
        case 'o':
        case 'g':
                *ret = json_object_new_string(v.s);
                break;
        case 'b':
                *ret = json_object_new_boolean(v.b);
                break;
        case 'y':
                *ret = json_object_new_int(v.y);
                break;
        case 'n':
                *ret = json_object_new_int(v.n);
                break;
        case 'q':
                *ret = json_object_new_int(v.q);
                break;
        case 'i':
                *ret = json_object_new_int(v.i);
                break;
        case 'u':
                *ret = json_object_new_int64(v.u);
                break;
        case 'x':
                *ret = json_object_new_int64(v.x);
                break;
        case 't':
                *ret = json_object_new_uint64(v.t);
                break;
        case 'd':
                *ret = json_object_new_double(v.d);
                break;
        default:
                *ret = NULL;
                return 0;
        }
        return *ret ? 0 : -ENOMEM;
}

static int read_list(sd_bus_message *m, unsigned depth, json_object *list) {
        json_object *v;
        int r;

        while ((r = sd_bus_message_at_end(m, false)) == 0) {
                r = read_value(m, depth, &v);
                if (r < 0)
                        return r;
                if (json_object_array_add(list, v) < 0) {
                        json_object_put(v);
                        return -ENOMEM;
                }
        }
        return r < 0 ? r : 0;
}

static int read_dict(sd_bus_message *m, const char *contents, unsigned depth, json_object *o) {
        _cleanup_free_ char *entry = strndup(contents + 1, strlen(contents) - 2);
        json_object *v;
        const char *name;
        int r;

        if (!entry)
                return -ENOMEM;
        while ((r = sd_bus_message_enter_container(m, 'e', entry)) > 0) {
                r = sd_bus_message_read_basic(m, entry[0], &name);
                if (r >= 0)
                        r = read_value(m, depth, &v);
                if (r < 0)
                        return r;
                if (json_object_object_add(o, name, v) < 0) {
                        json_object_put(v);
                        return -ENOMEM;
                }
                r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }
        return r;
}

static int read_container(sd_bus_message *m, char type, const char *contents, unsigned depth, json_object **ret) {
        bool dict = type == 'a' && (startswith(contents, "{s") || startswith(contents, "{o"));
        json_object *o = dict ? json_object_new_object() : json_object_new_array();

        int r = o ? sd_bus_message_enter_container(m, type, contents) : -ENOMEM;
        if (r >= 0)
                r = dict ? read_dict(m, contents, depth, o) : read_list(m, depth, o);
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r < 0) {
                json_object_put(o);
                return r;
        }
        *ret = o;
        return 0;
}

static int read_value(sd_bus_message *m, unsigned depth, json_object **ret) {
        const char *contents;
        char type;

        int r = sd_bus_message_peek_type(m, &type, &contents);
        if (r <= 0)
                return r < 0 ? r : -ENXIO;
        if (depth >= DEPTH_MAX)
                return -ELOOP;
        if (type == 'v') {
                r = sd_bus_message_enter_container(m, 'v', contents);
                if (r >= 0)
                        r = read_value(m, depth + 1, ret);
                if (r < 0)
                        return r;
                r = sd_bus_message_exit_container(m);
                if (r < 0) {
                        json_object_put(*ret);
                        return r;
                }
                return 0;
        }
        if (strchr("are", type))
                return read_container(m, type, contents, depth + 1, ret);
        return read_basic(m, type, ret);
}

int bus_to_json(sd_bus_message *m, json_object **ret) {
        return read_value(m, 0, ret);
}
