/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The connection to haproxy's own socket, over which it is told the routes: one for as long as haproxy runs, so that its
 * end tells of a restart. Each new connection begins with all routes, which replace those there in one step.
 *
 * Owned by the ingress (ingress.c). Where haproxy is away it is looked for again and again, and nothing waits for it. */

#include <stdbool.h>
#include <systemd/sd-event.h>

typedef struct IngressLink IngressLink;

typedef struct IngressLinkHandlers {
        /* All routes there are: ingress_link_add() for each. */
        void (*fill)(IngressLink *l, void *userdata);
        /* haproxy has done something, or has gone. */
        void (*moved)(IngressLink *l, void *userdata);
} IngressLinkHandlers;

int ingress_link_new(sd_event *event, const char *path, const IngressLinkHandlers *handlers, void *userdata, IngressLink **ret);
IngressLink *ingress_link_free(IngressLink *l);
/* Begins to look for haproxy, once. */
int ingress_link_start(IngressLink *l);

/* Nothing happens before it is filled: that will have it. */
void ingress_link_add(IngressLink *l, const char *id, const char *route);
void ingress_link_change(IngressLink *l, const char *id, const char *route);
void ingress_link_remove(IngressLink *l, const char *id);

/* A point in the order of changes: all of them until now. */
uint64_t ingress_link_now(const IngressLink *l);
/* Whether haproxy knows what was changed until then, or is away. */
bool ingress_link_reached(const IngressLink *l, uint64_t point);
