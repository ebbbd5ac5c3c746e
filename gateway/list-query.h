/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which sandboxes a client wants to see, in which order and how many. Pure. */

#include <systemd/sd-bus.h>

#include "gateway/body.h"
#include "gateway/url.h"

#define LIST_LIMIT 100U
/* Of the paths that have no pages: as many as cubed tells at once, and so much in all. */
#define LIST_WHOLE 1000U
#define LIST_WHOLE_BYTES_MAX (16U * 1024U * 1024U)

typedef struct ListQuery {
        json_object *metadata;        /* owned; NULL: any */
        bool running, paused;
        bool ascending;
        bool whole;                   /* all in one page */
        uint64_t started_after;       /* or then */
        const char *template_ref;     /* borrowed; NULL: any */
        bool nothing;                 /* can be of that template: it is no name of one */
        unsigned limit;
        bool goes_on;                 /* after this one: */
        uint64_t last_started;
        char last_id[32];
} ListQuery;

#define LIST_TOKEN_MAX 64U

/* v2 has pages, and the other states than running. -EINVAL with error. */
int list_query_parse(const Url *u, bool v2, ListQuery *ret, ErrorText *error);
void list_query_done(ListQuery *q);

/* What cubed is to find: FindSandboxes' a{sv}. after: where the page before ended; NULL: the query's own start. */
int list_query_append(sd_bus_message *m, const ListQuery *q, uid_t owner, const char *tenant, const char *after);
/* Takes what belongs on the page out of what was found, an array of (path, properties) in cubed's order. listed: an array of
 * properties. 1: it is full, and there is more; 0: what follows may belong on it. -E2BIG: it is more than can be told without
 * pages. */
int list_select(json_object *found, const ListQuery *q, json_object *listed);
/* The page as clients see it; NULL without memory. */
json_object *list_to_json(json_object *listed);
/* Where it ended. */
const char *list_token(json_object *listed, char token[static LIST_TOKEN_MAX]);

/* The limit and the token of other lists, too. */
int list_limit_parse(const Url *u, unsigned *ret, ErrorText *error);
int list_token_parse(const char *text, ListQuery *q, ErrorText *error);
