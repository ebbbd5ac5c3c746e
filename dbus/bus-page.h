/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A listing in pages, in the order of creation; what was made in one moment, in that of the ids. A page goes on behind a
 * place, whether or not something is there still. */

#include "dbus/bus-options.h"

#define BUS_PLACE_MAX 48U

typedef struct BusPage {
        uint32_t limit;            /* 0 until bus_page_check() where it is not given */
        bool newest_first;
        const char *after;         /* "CREATED_ID", borrowed; NULL: from the start */
        uint64_t after_usec;
        char after_id[21];
} BusPage;

/* Its options in a table. */
#define BUS_PAGE_OPTIONS(p)                                                     \
        { "newest-first", BUS_OPTION_BOOL, &(p)->newest_first, 0 },             \
        { "limit", BUS_OPTION_U32, &(p)->limit, BUS_OPTION_NONZERO },           \
        { "after", BUS_OPTION_STRING, &(p)->after, 0 }

/* Once they were read; limit becomes fallback where it was not given. */
int bus_page_check(BusPage *p, uint32_t fallback, uint32_t max, sd_bus_error *error);
/* Does it come behind the place where the page goes on? */
bool bus_page_has(const BusPage *p, uint64_t created_usec, const char *id);
/* As strcmp(), in that order. */
int bus_page_compare(const BusPage *p, uint64_t a_usec, const char *a_id, uint64_t b_usec, const char *b_id);
const char *bus_place_put(char buf[static BUS_PLACE_MAX], uint64_t created_usec, const char *id);
