/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The log of a build as clients see it: a line is an entry, with the time at which it was heard of and the step that it is of.
 * cubed's own lines, "[step 3 of 5 (RUN)]", are told in the client's numbers: without the steps that the gateway put before
 * and behind the client's. Guests can print such lines, too, which makes their log odd and nothing else. Hostile input, bounded.
 * Owned by its build. */

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "gateway/log-level.h"

#define BUILD_LOG_PAGE 100U

typedef struct BuildLogEntry {
        uint64_t usec;
        LogLevel level;
        unsigned step;             /* the client's, from 1 on; 0: the base; one more than there are: behind them */
        char *message;
} BuildLogEntry;

typedef struct BuildLog {
        unsigned n_before, n_steps; /* steps before the client's; the client's */
        BuildLogEntry *entries;
        size_t n, allocated, bytes;
        char line[4096];            /* the last one, which has no end yet */
        size_t line_size;
        unsigned step;              /* that is going on */
        unsigned n_cached;          /* of the client's, those that were told not to be run */
        bool hidden;                /* not one of the client's */
        bool full;
} BuildLog;

LogLevel log_level_from_string(const char *s);
void build_log_add(BuildLog *l, LogLevel level, uint64_t usec, const char *message);
/* What came, cut anywhere. */
void build_log_feed(BuildLog *l, const char *text, size_t size, uint64_t usec);
/* The first ones of cubed's steps were not run, as an earlier build has done them. */
void build_log_cached(BuildLog *l, unsigned n_cubed_steps, uint64_t usec);
/* Nothing more comes. */
void build_log_end(BuildLog *l, uint64_t usec);
void build_log_done(BuildLog *l);

/* The client's name of a step of cubed's: "base", "1" ..., "finalize". */
void build_step_name(const BuildLog *l, unsigned cubed_step, char *buf, size_t size);
/* Of that level or above, those of a time in ms or later; backward: or earlier, the last one first. NULL without memory. */
json_object *build_log_page_to_json(const BuildLog *l, uint64_t cursor_msec, bool backward, size_t limit, LogLevel level);
/* Entries from offset on, of that level or above; NULL without memory. */
json_object *build_log_to_json(const BuildLog *l, size_t offset, size_t limit, LogLevel level);
