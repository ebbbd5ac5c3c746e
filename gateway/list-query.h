/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which sandboxes a client wants to see, in which order and how many. Pure. */

#include "gateway/body.h"
#include "gateway/url.h"

#define LIST_LIMIT 100U

typedef struct ListQuery {
        json_object *metadata;        /* owned; NULL: any */
        bool running, paused;
        bool ascending;
        bool whole;                   /* all in one page */
        uint64_t started_after;       /* or then */
        const char *template_ref;     /* borrowed; NULL: any */
        unsigned limit;
        bool goes_on;                 /* after this one: */
        uint64_t last_started;
        char last_id[32];
} ListQuery;

#define LIST_TOKEN_MAX 64U

/* v2 has pages, and the other states than running. -EINVAL with error. */
int list_query_parse(const Url *u, bool v2, ListQuery *ret, ErrorText *error);
void list_query_done(ListQuery *q);

/* The page out of an array of properties, as clients see it. token is "" on the last one. NULL without memory. */
json_object *list_page(json_object *all, const ListQuery *q, char token[static LIST_TOKEN_MAX]);

/* The limit and the token of other lists, too. */
int list_limit_parse(const Url *u, unsigned *ret, ErrorText *error);
int list_token_parse(const char *text, ListQuery *q, ErrorText *error);
