/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What comes of a cell, as the code interpreter in a guest tells it: a stream of lines, each a JSON object. All of it is
 * hostile: lines are bounded in size and in the number of values, and what is not as it should be is -EBADMSG. */

#include <json-c/json.h>

#include "base/macros.h"

/* More than the server lets wait for a client. */
#define CELL_LINE_MAX MIB(80)
/* The largest table has a tenth of them. */
#define CELL_VALUES_MAX 1000000U

typedef enum CellEventType {
        CELL_OTHER,     /* what nobody has to look at */
        CELL_STDOUT,
        CELL_STDERR,
        CELL_RESULT,
        CELL_ERROR,
        CELL_END,
} CellEventType;

typedef struct CellEvent {
        CellEventType type;
        json_object *object;
} CellEvent;

int cell_event_parse(const char *line, size_t size, CellEvent *ret);
void cell_event_done(CellEvent *e);

/* A text that it has, of size bytes and with a NUL behind; NULL when there is none. Borrowed. */
const char *cell_event_text(const CellEvent *e, const char *name, size_t *ret_size);

/* Lines of a stream that comes in pieces. */
typedef struct CellLines {
        char *buffer;
        size_t size, allocated;
} CellLines;

typedef int (*CellEventHandler)(void *userdata, const CellEvent *e);
/* Gives each line that is whole to the handler, whose error ends it. */
int cell_lines_feed(CellLines *l, const char *data, size_t size, CellEventHandler handler, void *userdata);
void cell_lines_done(CellLines *l);
