/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which operation a request asks for. E2B's newer clients put /v2 in front of some paths. */

#include "gateway/request.h"

typedef void (*Operation)(Request *r);

typedef struct Route {
        const char *method;
        const char *path;         /* {sandbox}, {template} and {item} stand for a segment */
        bool body;                /* it must have one */
        Operation run;            /* NULL: open to all, says nothing */
        Operation begin;          /* once the headers are there, in place of looking for a key */
} Route;

extern const Route routes[];
extern const size_t n_routes;

/* What a path names; NULL where it does not. */
typedef struct RouteNames {
        const char *sandbox, *template, *item;
} RouteNames;

/* The route, or NULL: then *ret_status is 404, or 405 where another method would do. */
const Route *route_find(const char *method, const Url *u, RouteNames *ret, unsigned *ret_status);
/* id may be ID-CLIENT. -EINVAL: that is none. */
int route_sandbox_id(const char *id, char ret[static SANDBOX_ID_MAX]);

/* Needs no key. */
bool route_is_open(const Request *r);
/* Its permission is in its URL: it has begun, or is answered. */
bool route_begin(Request *r);
void route(Request *r);
bool request_is_v2(const Request *r);
