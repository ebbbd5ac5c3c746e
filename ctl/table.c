/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/parse.h"
#include "ctl/table.h"

#define COLUMNS_MAX 16U

typedef struct Cell {
        char *text;
        json_object *json;
        TextColor color;
} Cell;

struct Table {
        const char *const *headers;
        size_t n_columns;
        Cell *cells;
        size_t n_cells, n_allocated;
        bool numeric[COLUMNS_MAX];
        int error;
};

Table *table_new(const char *const *headers) {
        Table *t = new0(Table, 1);
        if (!t)
                return NULL;

        t->headers = headers;
        while (headers[t->n_columns])
                t->n_columns++;
        assert(t->n_columns <= COLUMNS_MAX);
        return t;
}

Table *table_free(Table *t) {
        if (!t)
                return NULL;

        for (size_t i = 0; i < t->n_cells; i++) {
                free(t->cells[i].text);
                json_object_put(t->cells[i].json);
        }
        free(t->cells);
        free(t);
        return NULL;
}

/* Takes json, which may be NULL for null. */
static void add_cell(Table *t, const char *text, json_object *json, bool numeric) {
        if (t->error >= 0 && t->n_cells == t->n_allocated) {
                size_t n = t->n_allocated * 2 + 32;
                Cell *cells = realloc(t->cells, n * sizeof(Cell));
                if (cells) {
                        t->cells = cells;
                        t->n_allocated = n;
                } else
                        t->error = -ENOMEM;
        }

        char *copy = t->error >= 0 ? text_printable(text, strlen(text), false) : NULL;
        if (!copy) {
                t->error = -ENOMEM;
                json_object_put(json);
                return;
        }
        t->numeric[t->n_cells % t->n_columns] = numeric;
        t->cells[t->n_cells++] = (Cell) { .text = copy, .json = json };
}

void table_add(Table *t, const char *text) {
        if (isempty(text))
                add_cell(t, "-", NULL, false);
        else
                add_cell(t, text, json_object_new_string(text), false);
}

void table_add_size(Table *t, uint64_t bytes) {
        char buf[FORMAT_SIZE_MAX];
        add_cell(t, format_size(buf, bytes), json_object_new_uint64(bytes), true);
}

void table_add_number(Table *t, uint64_t number) {
        char buf[32];

        if (number == 0)
                add_cell(t, "-", NULL, true);
        else {
                (void) snprintf(buf, sizeof(buf), "%" PRIu64, number);
                add_cell(t, buf, json_object_new_uint64(number), true);
        }
}

void table_add_age(Table *t, uint64_t realtime_usec) {
        char buf[TEXT_TIME_MAX];
        add_cell(t, text_relative(buf, realtime_usec), json_object_new_uint64(realtime_usec), false);
}

void table_add_user(Table *t, uid_t uid) {
        char buf[TEXT_USER_MAX];
        add_cell(t, text_user(buf, uid), json_object_new_uint64(uid), false);
}

void table_set_color(Table *t, TextColor c) {
        if (t->error >= 0 && t->n_cells > 0)
                t->cells[t->n_cells - 1].color = c;
}

size_t table_rows(const Table *t) {
        return t->n_cells / t->n_columns;
}

int json_print(json_object *o) {
        int flags = JSON_C_TO_STRING_NOSLASHESCAPE |
                    (ctl_options.json == JSON_PRETTY ? JSON_C_TO_STRING_PRETTY|JSON_C_TO_STRING_SPACED
                                                     : JSON_C_TO_STRING_PLAIN);
        const char *text = json_object_to_json_string_ext(o, flags);
        _cleanup_free_ char *s = text ? text_json(text) : NULL;
        int r = s && puts(s) >= 0 && fflush(stdout) == 0 ? 0 : -EIO;

        json_object_put(o);
        return r;
}

static void key_of_header(const char *header, char *buf, size_t size) {
        size_t i = 0;
        for (; header[i] && i + 1 < size; i++)
                buf[i] = header[i] == ' ' ? '_' : (char) tolower((unsigned char) header[i]);
        buf[i] = 0;
}

static int print_json(const Table *t) {
        json_object *rows = json_object_new_array();
        if (!rows)
                return -ENOMEM;

        for (size_t row = 0; row < table_rows(t); row++) {
                json_object *o = json_object_new_object();
                if (!o || json_object_array_add(rows, o) < 0) {
                        json_object_put(o);
                        json_object_put(rows);
                        return -ENOMEM;
                }
                for (size_t c = 0; c < t->n_columns; c++) {
                        char key[64];
                        key_of_header(t->headers[c], key, sizeof(key));
                        (void) json_object_object_add(o, key, json_object_get(t->cells[row * t->n_columns + c].json));
                }
        }
        return json_print(rows);
}

static void print_cell(const char *text, size_t width, bool last, bool right, const char *before, const char *after) {
        size_t w = text_width(text);
        int pad = w < width ? (int) (width - w) : 0;

        if (right)
                printf("%*s", pad, "");
        printf("%s%s%s", before, text, after);
        if (!right && !last)
                printf("%*s", pad, "");
        putchar(last ? '\n' : ' ');
}

static void column_widths(const Table *t, size_t *widths) {
        for (size_t c = 0; c < t->n_columns; c++) {
                widths[c] = ctl_options.legend ? text_width(t->headers[c]) : 0;
                for (size_t row = 0; row < table_rows(t); row++)
                        widths[c] = MAX(widths[c], text_width(t->cells[row * t->n_columns + c].text));
        }
}

static int print_text(const Table *t, const char *one, const char *many) {
        size_t widths[COLUMNS_MAX] = {}, n = table_rows(t), last = t->n_columns - 1;

        column_widths(t, widths);
        for (size_t c = 0; n > 0 && ctl_options.legend && c <= last; c++)
                print_cell(t->headers[c], widths[c], c == last, t->numeric[c], text_color(TEXT_UNDERLINE),
                           text_color(TEXT_NORMAL));

        for (size_t i = 0; i < t->n_cells; i++) {
                const Cell *cell = &t->cells[i];
                size_t c = i % t->n_columns;
                bool plain = cell->color == TEXT_NORMAL;
                print_cell(cell->text, widths[c], c == last, t->numeric[c], plain ? "" : text_color(cell->color),
                           plain ? "" : text_color(TEXT_NORMAL));
        }

        if (ctl_options.legend && one) {
                if (n == 0)
                        printf("No %s.\n", many);
                else
                        printf("\n%zu %s listed.\n", n, n == 1 ? one : many);
        }
        return fflush(stdout) == 0 ? 0 : -EIO;
}

int table_print(const Table *t, const char *one, const char *many) {
        if (t->error < 0)
                return t->error;
        return ctl_options.json != JSON_OFF ? print_json(t) : print_text(t, one, many);
}
