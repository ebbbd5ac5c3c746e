/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "base/utf8.h"
#include "gateway/log-entries.h"
#include "gateway/timestamp.h"

#define UNFINISHED_USEC USEC_PER_SEC

static const char *const levels[_LOG_LEVEL_MAX] = { "debug", "info", "warn", "error" };

void log_entries_done(LogEntries *l) {
        for (size_t i = 0; i < l->n; i++)
                free(l->items[i].message);
        free(l->items);
        *l = (LogEntries) {};
}

/* Valid characters, and nothing that commands a terminal. */
static char *printable(const char *text, size_t size) {
        char *s = malloc(size + 1), *to = s;

        for (size_t i = 0, n; s && i < size; i += n) {
                n = utf8_sequence((const uint8_t *) text + i, size - i);
                unsigned char c = (unsigned char) text[i];
                /* C1 is two bytes, the second below 0xa0. */
                bool control = c < 0x20 || c == 0x7f || (n == 2 && c == 0xc2 && (unsigned char) text[i + 1] < 0xa0);
                if (n == 0 || control) {
                        *to++ = c == '\t' ? ' ' : '?';
                        n = MAX(n, (size_t) 1);
                        continue;
                }
                memcpy(to, text + i, n);
                to += n;
        }
        if (s)
                *to = 0;
        return s;
}

int log_entries_add(LogEntries *l, uint64_t usec, unsigned level, const char *source, const char *text, size_t size) {
        if ((l->n & (l->n + 1)) == 0) {
                LogEntry *grown = realloc(l->items, (l->n + 1) * 2 * sizeof(LogEntry));
                if (!grown)
                        return -ENOMEM;
                l->items = grown;
        }
        char *message = printable(text, MIN(size, (size_t) LOG_LINE_MAX));
        if (!message)
                return -ENOMEM;
        l->items[l->n] = (LogEntry) { .usec = usec, .level = level, .source = source, .message = message, .number = l->n };
        l->n++;
        return 0;
}

/* The console. */

typedef struct Console {
        const ConsoleRing *ring;
        ConsoleMark marks[CONSOLE_MARKS];  /* in order of their positions */
        size_t n_marks, at;
        uint64_t now_usec;
} Console;

static int compare_marks(const void *a, const void *b) {
        const ConsoleMark *x = a, *y = b;

        return x->position < y->position ? -1 : x->position > y->position;
}

static void read_marks(Console *c, const ConsoleMarks *marks) {
        c->n_marks = (size_t) MIN(marks->n, (uint64_t) CONSOLE_MARKS);
        memcpy(c->marks, marks->marks, c->n_marks * sizeof(ConsoleMark));
        qsort(c->marks, c->n_marks, sizeof(ConsoleMark), compare_marks);
}

/* Of positions that only go up. */
static uint64_t time_at(Console *c, uint64_t position) {
        while (c->at + 1 < c->n_marks && c->marks[c->at + 1].position <= position)
                c->at++;
        return c->n_marks > 0 ? MIN(c->marks[c->at].usec, c->now_usec) : c->now_usec;
}

static int add_line(LogEntries *l, uint64_t usec, const char *line, size_t size) {
        while (size > 0 && line[size - 1] == '\r')
                size--;
        return size > 0 ? log_entries_add(l, usec, LOG_LEVEL_INFO, "console", line, size) : 0;
}

static int add_lines(LogEntries *l, Console *c, const char *text, size_t size, uint64_t position) {
        for (size_t i = 0, n; i < size; i += n) {
                const char *end = memchr(text + i, '\n', size - i);
                uint64_t usec = time_at(c, position + i);
                n = end ? (size_t) (end - text) - i + 1 : size - i;
                if (!end && c->now_usec - usec < UNFINISHED_USEC)
                        return 0;
                int r = add_line(l, usec, text + i, end ? n - 1 : n);
                if (r < 0)
                        return r;
        }
        return 0;
}

int log_entries_add_console(LogEntries *l, const void *file, size_t size, uint64_t now_usec) {
        Console c = { .ring = file, .now_usec = now_usec };

        if (size < sizeof(ConsoleRing))
                return 0;
        if (size >= CONSOLE_BYTES)
                read_marks(&c, (const ConsoleMarks *) ((const uint8_t *) file + sizeof(ConsoleRing)));

        uint64_t head = c.ring->head, position = head > CONSOLE_RING_BYTES ? head - CONSOLE_RING_BYTES : 0;
        size_t n = (size_t) (head - position), skip = 0;
        _cleanup_free_ char *text = malloc(n + 1);
        if (!text)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++)
                text[i] = (char) c.ring->data[(position + i) % CONSOLE_RING_BYTES];
        /* The beginning of the first one may be gone. */
        if (position > 0) {
                const char *end = memchr(text, '\n', n);
                skip = end ? (size_t) (end - text) + 1 : 0;
        }
        return add_lines(l, &c, text + skip, n - skip, position + skip);
}

/* What is asked for. */

static int parse_level(const char *text, unsigned *ret) {
        for (unsigned i = 0; i < _LOG_LEVEL_MAX; i++)
                if (streq(text, levels[i])) {
                        *ret = i;
                        return 0;
                }
        return -EINVAL;
}

static int parse_v2(const Url *u, LogQuery *ret, ErrorText *error) {
        const char *direction = url_query(u, "direction"), *level = url_query(u, "level");

        ret->search = url_query(u, "search");
        if (direction && !streq(direction, "forward") && !streq(direction, "backward"))
                return error_text(error, "Invalid direction: forward or backward");
        if (level && parse_level(level, &ret->level) < 0)
                return error_text(error, "Invalid level: debug, info, warn or error");
        if (ret->search && strlen(ret->search) > LOG_SEARCH_MAX)
                return error_text(error, "Invalid search: %u bytes at most", LOG_SEARCH_MAX);
        ret->backward = direction && streq(direction, "backward");
        return 0;
}

int log_query_parse(const Url *u, bool v2, LogQuery *ret, ErrorText *error) {
        const char *cursor = url_query(u, v2 ? "cursor" : "start"), *limit = url_query(u, "limit");
        uint32_t n = LOG_LIMIT;

        *ret = (LogQuery) {};
        if (cursor && parse_u64(cursor, &ret->cursor_msec) < 0)
                return error_text(error, "Invalid %s: it is in milliseconds since 1970", v2 ? "cursor" : "start");
        /* Older clients ask for more than there can be. */
        if (limit && (parse_u32(limit, &n) < 0 || (v2 && n > LOG_LIMIT)))
                return error_text(error, "Invalid limit: 0 to %u", LOG_LIMIT);
        ret->given = cursor != NULL;
        ret->limit = MIN(n, LOG_LIMIT);
        return v2 ? parse_v2(u, ret, error) : 0;
}

static int compare_entries(const void *a, const void *b) {
        const LogEntry *x = a, *y = b;

        if (x->usec != y->usec)
                return x->usec < y->usec ? -1 : 1;
        return x->number < y->number ? -1 : x->number > y->number;
}

static bool matches(const LogEntry *e, const LogQuery *q) {
        uint64_t msec = e->usec / USEC_PER_MSEC;

        if (q->given && (q->backward ? msec > q->cursor_msec : msec < q->cursor_msec))
                return false;
        return e->level >= q->level && (!q->search || strstr(e->message, q->search));
}

static int add(json_object *o, const char *name, json_object *v) {
        if (v && json_object_object_add(o, name, v) == 0)
                return 0;
        json_object_put(v);
        return -ENOMEM;
}

static json_object *new_object(const LogEntry *e, const char *text_name) {
        json_object *o = json_object_new_object();
        char time[TIMESTAMP_MAX];

        if (o && add(o, "timestamp", json_object_new_string(timestamp_format(time, e->usec))) >= 0 &&
            add(o, text_name, json_object_new_string(e->message)) >= 0)
                return o;
        json_object_put(o);
        return NULL;
}

static json_object *new_entry(const LogEntry *e) {
        json_object *o = new_object(e, "message"), *fields = o ? json_object_new_object() : NULL;

        if (!fields || add(fields, "source", json_object_new_string(e->source)) < 0)
                json_object_put(fields);
        else if (add(o, "fields", fields) >= 0 && add(o, "level", json_object_new_string(levels[e->level])) >= 0)
                return o;
        json_object_put(o);
        return NULL;
}

static json_object *new_line(const LogEntry *e) {
        return new_object(e, "line");
}

static json_object *select_entries(const LogEntries *l, const LogQuery *q, json_object *(*make)(const LogEntry *e)) {
        json_object *array = json_object_new_array();
        size_t n = 0;

        for (size_t i = 0; array && i < l->n && n < q->limit; i++) {
                const LogEntry *e = &l->items[q->backward ? l->n - 1 - i : i];
                if (!matches(e, q))
                        continue;
                json_object *o = make(e);
                if (!o || json_object_array_add(array, o) < 0) {
                        json_object_put(o);
                        json_object_put(array);
                        return NULL;
                }
                n++;
        }
        return array;
}

json_object *log_entries_to_json(LogEntries *l, const LogQuery *q, bool v2) {
        json_object *o = json_object_new_object();

        if (l->n > 0)
                qsort(l->items, l->n, sizeof(LogEntry), compare_entries);
        if (o && add(o, "logs", select_entries(l, q, v2 ? new_entry : new_line)) >= 0 &&
            (v2 || add(o, "logEntries", select_entries(l, q, new_entry)) >= 0))
                return o;
        json_object_put(o);
        return NULL;
}
