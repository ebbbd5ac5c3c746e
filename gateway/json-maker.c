/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/json-maker.h"
#include "gateway/timestamp.h"

JsonMaker json_maker_new(void) {
        json_object *o = json_object_new_object();

        return (JsonMaker) { .object = o, .failed = !o };
}

json_object *json_maker_done(JsonMaker *m) {
        if (m->failed) {
                json_object_put(m->object);
                return NULL;
        }
        return m->object;
}

void json_put(JsonMaker *m, const char *name, json_object *v) {
        if (!m->failed && v && json_object_object_add(m->object, name, v) == 0)
                return;
        m->failed = true;
        json_object_put(v);
}

void json_put_string(JsonMaker *m, const char *name, const char *s) {
        json_put(m, name, json_object_new_string(s));
}

void json_put_null(JsonMaker *m, const char *name) {
        m->failed = m->failed || json_object_object_add(m->object, name, NULL) != 0;
}

void json_put_time(JsonMaker *m, const char *name, uint64_t usec) {
        char text[TIMESTAMP_MAX];

        json_put_string(m, name, timestamp_format(text, usec));
}

bool json_append(json_object *list, json_object *v) {
        if (list && v && json_object_array_add(list, v) == 0)
                return true;
        json_object_put(v);
        return false;
}
