/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/cell-event.h"

#define DEPTH_MAX 32

DEFINE_CLEANUP(json_tokener *, json_tokener_free)

/* A bound from above, before the parser makes something of each. */
static bool too_many_values(const char *line, size_t size) {
        bool quoted = false;
        size_t n = 0;

        for (size_t i = 0; i < size; i++)
                if (quoted && line[i] == '\\')
                        i++;
                else if (quoted)
                        quoted = line[i] != '"';
                else if (line[i] == '"')
                        quoted = true;
                else if (line[i] == ',' || line[i] == '[' || line[i] == '{')
                        n++;
        return n > CELL_VALUES_MAX;
}

static int parse_object(const char *line, size_t size, json_object **ret) {
        _cleanup_(json_tokener_freep) json_tokener *t = NULL;

        if (size == 0 || size > CELL_LINE_MAX || too_many_values(line, size))
                return -EBADMSG;
        t = json_tokener_new_ex(DEPTH_MAX);
        if (!t)
                return -ENOMEM;
        json_tokener_set_flags(t, JSON_TOKENER_STRICT|JSON_TOKENER_VALIDATE_UTF8);
        json_object *o = json_tokener_parse_ex(t, line, (int) size);
        if (json_tokener_get_error(t) != json_tokener_success || json_tokener_get_parse_end(t) != size ||
            !json_object_is_type(o, json_type_object)) {
                json_object_put(o);
                return -EBADMSG;
        }
        *ret = o;
        return 0;
}

static CellEventType type_from_string(const char *s) {
        static const char *const names[] = {
                [CELL_STDOUT] = "stdout", [CELL_STDERR] = "stderr", [CELL_RESULT] = "result",
                [CELL_ERROR] = "error", [CELL_END] = "end_of_execution",
        };

        for (size_t i = CELL_STDOUT; i < ELEMENTSOF(names); i++)
                if (streq(names[i], s))
                        return (CellEventType) i;
        return CELL_OTHER;
}

int cell_event_parse(const char *line, size_t size, CellEvent *ret) {
        CellEvent e = {};
        size_t n;

        int r = parse_object(line, size, &e.object);
        if (r < 0)
                return r;
        const char *type = cell_event_text(&e, "type", &n);
        if (!type) {
                cell_event_done(&e);
                return -EBADMSG;
        }
        e.type = type_from_string(type);
        *ret = e;
        return 0;
}

void cell_event_done(CellEvent *e) {
        json_object_put(e->object);
        e->object = NULL;
}

const char *cell_event_text(const CellEvent *e, const char *name, size_t *ret_size) {
        json_object *value;

        if (!json_object_object_get_ex(e->object, name, &value) || !json_object_is_type(value, json_type_string))
                return NULL;
        *ret_size = (size_t) json_object_get_string_len(value);
        return json_object_get_string(value);
}

static int handle_line(const char *line, size_t size, CellEventHandler handler, void *userdata) {
        _cleanup_(cell_event_done) CellEvent e = {};

        int r = cell_event_parse(line, size, &e);
        return r < 0 ? r : handler(userdata, &e);
}

static int append(CellLines *l, const char *data, size_t size) {
        if (size > CELL_LINE_MAX - l->size)
                return -EBADMSG;
        if (l->size + size > l->allocated) {
                size_t wanted = MAX(l->size + size, MIN(l->allocated * 2, (size_t) CELL_LINE_MAX));
                char *grown = realloc(l->buffer, wanted);
                if (!grown)
                        return -ENOMEM;
                l->buffer = grown;
                l->allocated = wanted;
        }
        if (size > 0)
                memcpy(l->buffer + l->size, data, size);
        l->size += size;
        return 0;
}

int cell_lines_feed(CellLines *l, const char *data, size_t size, CellEventHandler handler, void *userdata) {
        const char *end;
        int r = 0;

        while (r >= 0 && size > 0 && (end = memchr(data, '\n', size))) {
                size_t n = (size_t) (end - data);
                r = append(l, data, n);
                if (r >= 0)
                        r = handle_line(l->buffer, l->size, handler, userdata);
                l->size = 0;
                data += n + 1;
                size -= n + 1;
        }
        return r < 0 ? r : append(l, data, size);
}

void cell_lines_done(CellLines *l) {
        free(l->buffer);
        *l = (CellLines) {};
}
