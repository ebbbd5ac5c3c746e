/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/utf8.h"
#include "gateway/build-log.h"
#include "gateway/json-maker.h"

#define ENTRIES_MAX 20000U
#define BYTES_MAX (2U * 1024U * 1024U)

static const char *const levels[_LOG_LEVEL_MAX] = {
        [LOG_LEVEL_DEBUG] = "debug",
        [LOG_LEVEL_INFO] = "info",
        [LOG_LEVEL_WARN] = "warn",
        [LOG_LEVEL_ERROR] = "error",
};

LogLevel log_level_from_string(const char *s) {
        for (int i = 0; s && i < _LOG_LEVEL_MAX; i++)
                if (streq(levels[i], s))
                        return (LogLevel) i;
        return _LOG_LEVEL_INVALID;
}

/* For JSON: bytes that are no text become '?'. */
static char *copy_text(const char *text) {
        char *copy = strdup(text);
        uint8_t *p = (uint8_t *) copy;

        for (size_t left = copy ? strlen(copy) : 0, n; left > 0; p += n, left -= n) {
                n = utf8_sequence(p, left);
                if (n > 0)
                        continue;
                *p = '?';
                n = 1;
        }
        return copy;
}

static BuildLogEntry *new_entry(BuildLog *l) {
        if (l->n == l->allocated) {
                size_t more = l->allocated * 2 + 32;
                BuildLogEntry *grown = realloc(l->entries, more * sizeof(BuildLogEntry));
                if (!grown)
                        return NULL;
                l->entries = grown;
                l->allocated = more;
        }
        return &l->entries[l->n];
}

static void put(BuildLog *l, LogLevel level, uint64_t usec, const char *message) {
        BuildLogEntry *e = new_entry(l);
        char *text = e ? copy_text(message) : NULL;

        if (!text)
                return;
        *e = (BuildLogEntry) { .usec = usec, .level = level, .step = l->step, .message = text };
        l->bytes += strlen(text);
        l->n++;
}

void build_log_add(BuildLog *l, LogLevel level, uint64_t usec, const char *message) {
        /* The last word of a build is never lost. */
        if (level == LOG_LEVEL_ERROR) {
                put(l, level, usec, message);
                return;
        }
        if (l->full)
                return;
        l->full = l->n >= ENTRIES_MAX || l->bytes + strlen(message) > BYTES_MAX;
        put(l, l->full ? LOG_LEVEL_WARN : level, usec, l->full ? "The log is full, the rest is not shown" : message);
}

/* 1: it is one of cubed's about a step. */
static bool is_step_line(const char *line, unsigned *ret_step, const char **ret_kind, size_t *ret_kind_size) {
        unsigned n, of;
        int at = 0;

        if (sscanf(line, "[step %9u of %9u (%n", &n, &of, &at) != 2 || at == 0)
                return false;
        size_t size = strspn(line + at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (size == 0 || !streq(line + at + size, ")]"))
                return false;
        *ret_step = n;
        *ret_kind = line + at;
        *ret_kind_size = size;
        return true;
}

void build_log_cached(BuildLog *l, unsigned n_cubed_steps, uint64_t usec) {
        unsigned n = n_cubed_steps > l->n_before ? MIN(n_cubed_steps - l->n_before, l->n_steps) : 0, step = l->step;
        char text[64];

        while (l->n_cached < n) {
                l->step = ++l->n_cached;
                (void) snprintf(text, sizeof(text), "[%u/%u] CACHED", l->n_cached, l->n_steps);
                build_log_add(l, LOG_LEVEL_INFO, usec, text);
        }
        l->step = step;
}

static void take_line(BuildLog *l, uint64_t usec) {
        const char *kind;
        size_t kind_size;
        unsigned step;
        char text[64];

        l->line[l->line_size] = 0;
        if (l->line_size > 0 && l->line[l->line_size - 1] == '\r')
                l->line[l->line_size - 1] = 0;
        l->line_size = 0;
        if (streq(l->line, "[all steps are done]")) {
                l->step = l->n_steps + 1;
                l->hidden = false;
                return;
        }
        if (!is_step_line(l->line, &step, &kind, &kind_size)) {
                if (!l->hidden)
                        build_log_add(l, LOG_LEVEL_INFO, usec, l->line);
                return;
        }
        /* The first one that is run tells of those that are not. */
        if (l->step == 0 && step > 0)
                build_log_cached(l, step - 1, usec);
        l->hidden = step <= l->n_before || step > l->n_before + l->n_steps;
        l->step = step <= l->n_before ? 0 : MIN(step - l->n_before, l->n_steps);
        if (l->hidden)
                return;
        (void) snprintf(text, sizeof(text), "[%u/%u] %.*s", l->step, l->n_steps, (int) kind_size, kind);
        build_log_add(l, LOG_LEVEL_INFO, usec, text);
}

void build_log_feed(BuildLog *l, const char *text, size_t size, uint64_t usec) {
        for (; size > 0; text++, size--) {
                if (*text == '\n' || l->line_size == sizeof(l->line) - 1)
                        take_line(l, usec);
                /* A NUL would end the line before its end. */
                if (*text != '\n')
                        l->line[l->line_size++] = *text ? *text : '?';
        }
}

void build_log_end(BuildLog *l, uint64_t usec) {
        if (l->line_size > 0)
                take_line(l, usec);
}

void build_log_done(BuildLog *l) {
        for (size_t i = 0; i < l->n; i++)
                free(l->entries[i].message);
        free(l->entries);
        *l = (BuildLog) {};
}

void build_step_name(const BuildLog *l, unsigned cubed_step, char *buf, size_t size) {
        if (cubed_step <= l->n_before)
                (void) snprintf(buf, size, "base");
        else if (cubed_step > l->n_before + l->n_steps)
                (void) snprintf(buf, size, "finalize");
        else
                (void) snprintf(buf, size, "%u", cubed_step - l->n_before);
}

static json_object *entry_to_json(const BuildLog *l, const BuildLogEntry *e) {
        JsonMaker m = json_maker_new();
        char step[16];

        json_put_time(&m, "timestamp", e->usec);
        json_put_string(&m, "level", levels[e->level]);
        json_put_string(&m, "message", e->message);
        build_step_name(l, e->step == 0 ? 0 : l->n_before + e->step, step, sizeof(step));
        json_put_string(&m, "step", step);
        return json_maker_done(&m);
}

json_object *build_log_to_json(const BuildLog *l, size_t offset, size_t limit, LogLevel level) {
        json_object *list = json_object_new_array();
        size_t n = 0, seen = 0;
        bool ok = list;

        for (size_t i = 0; ok && i < l->n && n < limit; i++) {
                if (l->entries[i].level < level || seen++ < offset)
                        continue;
                ok = json_append(list, entry_to_json(l, &l->entries[i]));
                n++;
        }
        if (ok)
                return list;
        json_object_put(list);
        return NULL;
}

json_object *build_log_page_to_json(const BuildLog *l, uint64_t cursor_msec, bool backward, size_t limit, LogLevel level) {
        json_object *list = json_object_new_array();
        bool ok = list;
        size_t n = 0;

        for (size_t i = 0; ok && i < l->n && n < limit; i++) {
                const BuildLogEntry *e = &l->entries[backward ? l->n - 1 - i : i];
                uint64_t msec = e->usec / USEC_PER_MSEC;
                if (e->level < level || (backward ? msec > cursor_msec : msec < cursor_msec))
                        continue;
                ok = json_append(list, entry_to_json(l, e));
                n++;
        }
        if (ok)
                return list;
        json_object_put(list);
        return NULL;
}
