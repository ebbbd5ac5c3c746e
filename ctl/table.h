/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A table on stdout, or the same as JSON.
 *
 * Cells are added row by row, left to right, in the order of the headers; each holds what is shown
 * and what JSON says. Owned by the verb that prints it. The first error sticks and is returned by
 * table_print(). */

#include <json-c/json.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"
#include "ctl/ctl.h"
#include "ctl/text.h"

typedef struct Table Table;

/* headers: NULL-terminated, in capitals; JSON's keys are the same in small letters with "_". */
Table *table_new(const char *const *headers);
Table *table_free(Table *t);
DEFINE_CLEANUP(Table *, table_free);

void table_add(Table *t, const char *text);        /* NULL and "" show as "-" */
void table_add_size(Table *t, uint64_t bytes);
void table_add_number(Table *t, uint64_t number);   /* 0 shows as "-" */
void table_add_age(Table *t, uint64_t realtime_usec);
void table_add_user(Table *t, uid_t uid);
/* Of the cell added last. */
void table_set_color(Table *t, TextColor c);

size_t table_rows(const Table *t);
/* noun: what the legend counts ("sandbox", "sandboxes"); NULL: no count. */
int table_print(const Table *t, const char *one, const char *many);

/* Prints and releases a JSON value in the chosen mode. */
int json_print(json_object *o);
