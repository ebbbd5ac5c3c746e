/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "gateway/bus-json.h"

json_object *info_get(json_object *o, const char *name) {
        json_object *v;

        return o && json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, name, &v) ? v : NULL;
}

const char *info_string(json_object *o, const char *name) {
        json_object *v = info_get(o, name);

        return json_object_is_type(v, json_type_string) ? json_object_get_string(v) : "";
}

uint64_t info_u64(json_object *o, const char *name) {
        json_object *v = info_get(o, name);

        return json_object_is_type(v, json_type_int) ? json_object_get_uint64(v) : 0;
}

int bus_object_to_json(sd_bus_message *m, const char *interface, json_object *ret) {
        json_object *o;
        const char *name;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "{sa{sv}}");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sa{sv}")) > 0) {
                r = sd_bus_message_read_basic(m, 's', &name);
                if (r >= 0 && !streq(name, interface))
                        r = sd_bus_message_skip(m, "a{sv}");
                else if (r >= 0) {
                        r = bus_to_json(m, &o);
                        if (r >= 0 && json_object_array_add(ret, o) < 0) {
                                json_object_put(o);
                                r = -ENOMEM;
                        }
                }
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

int bus_objects_to_json(sd_bus_message *m, const char *interface, json_object *ret) {
        const char *path;

        int r = sd_bus_message_enter_container(m, 'a', "{oa{sa{sv}}}");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "oa{sa{sv}}")) > 0) {
                r = sd_bus_message_read_basic(m, 'o', &path);
                if (r >= 0)
                        r = bus_object_to_json(m, interface, ret);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}
