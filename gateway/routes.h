/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which operation a request asks for. E2B's newer clients put /v2 in front of some paths. */

#include "gateway/request.h"

typedef void (*Operation)(Request *r);

typedef struct Route {
        const char *method;
        const char *path;         /* {sandbox} and {template} stand for a segment */
        bool body;                /* it must have one */
        Operation run;            /* NULL: open to all, says nothing */
} Route;

extern const Route routes[];
extern const size_t n_routes;

/* The route, or NULL: then *ret_status is 404, or 405 where another method would do. Of the path's names
 * ret_sandbox and ret_template are set. */
const Route *route_find(const char *method, const Url *u, const char **ret_sandbox, const char **ret_template,
                        unsigned *ret_status);
/* id may be ID-CLIENT. -EINVAL: that is none. */
int route_sandbox_id(const char *id, char ret[static SANDBOX_ID_MAX]);

/* Needs no key. */
bool route_is_open(const Request *r);
void route(Request *r);
bool request_is_v2(const Request *r);
