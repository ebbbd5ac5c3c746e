/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Log entries of a sandbox as clients see them: what cubed says of it, and the lines of its console.
 *
 * The console is a guest's text in a file of its VMM's: bounded by the ring, cut into lines, made printable and valid, and
 * nothing in it is believed but its letters. Times are those at which the VMM got them, no later than now. Pure. */

#include "base/console-ring.h"
#include "gateway/body.h"
#include "gateway/log-level.h"
#include "gateway/url.h"

#define LOG_LIMIT 1000U
#define LOG_SEARCH_MAX 256U
#define LOG_LINE_MAX 4096U

typedef struct LogEntry {
        uint64_t usec;
        unsigned level;             /* index of log_levels */
        const char *source;         /* borrowed */
        char *message;
        size_t number;              /* what was added before comes before */
} LogEntry;

typedef struct LogEntries {
        LogEntry *items;
        size_t n;
} LogEntries;

void log_entries_done(LogEntries *l);
int log_entries_add(LogEntries *l, uint64_t usec, unsigned level, const char *source, const char *text, size_t size);
/* file: what there is of the file that OpenConsole gave, as it was read. A line that has not ended is taken when nothing came to
 * it for a second. */
int log_entries_add_console(LogEntries *l, const void *file, size_t size, uint64_t now_usec);

typedef struct LogQuery {
        bool given, backward;
        uint64_t cursor_msec;       /* from there on, in its direction */
        unsigned limit, level;
        const char *search;         /* borrowed; NULL: any */
} LogQuery;

/* v2 has a direction, a level and a search. -EINVAL with error. */
int log_query_parse(const Url *u, bool v2, LogQuery *ret, ErrorText *error);
/* {logs}, without v2 {logs, logEntries}; sorts l. NULL without memory. */
json_object *log_entries_to_json(LogEntries *l, const LogQuery *q, bool v2);
