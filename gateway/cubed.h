/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls to cubed for requests, without waiting. A connection may have few outstanding on Debian's bus (128): beyond a
 * bound they wait here for their turn, and no tenant's take all of them. A request has one call at a time; it is dropped with its
 * request. While cubed is restarted calls that it has not begun, or that change nothing, wait for the next one. */

#include "gateway/gateway.h"

/* When it comes and goes. */
#define CUBED_OWNER_MATCH                                                                                                      \
        "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',arg0='"     \
        CUBE_BUS_NAME "'"

int cubed_new(sd_bus *bus, Cubed **ret);
Cubed *cubed_free(Cubed *c);
DEFINE_CLEANUP(Cubed *, cubed_free)

/* reply is borrowed; error is NULL, or what cubed said, and reply NULL. */
typedef void (*CubedDone)(Request *r, sd_bus_message *reply, const sd_bus_error *error);

int cubed_message(Request *r, const char *path, const char *interface, const char *method, sd_bus_message **ret);
/* Of the request's sandbox. */
int cubed_message_sandbox(Request *r, const char *method, sd_bus_message **ret);
/* k < 0 is what making m came to: then the request is answered with it. */
void cubed_call(Request *r, sd_bus_message *m, int k, CubedDone done);
/* The same, where polkit is asked who may. false: the request is answered, and done is not called. */
bool cubed_call_asking(Request *r, sd_bus_message *m, int k, CubedDone done);
/* Of r->sandbox_id; then goes on with then, or answers 404: of another tenant is as not there. */
void cubed_get_sandbox(Request *r, void (*then)(Request *r));
/* Sandboxes that were made bound to us, so that they end with us, outlive us from now on: their client is being told. */
void cubed_unbind(Request *r, const char *const *ids, size_t n, CubedDone done);
void cubed_drop(Request *r);

/* The answer to a call that failed. */
void reply_cubed_error(Request *r, const sd_bus_error *error);
void reply_no_sandbox(Request *r);
/* What it said, or the bus for it, means that it does not run, or ended while it was asked. */
bool cubed_is_away(const sd_bus_error *error);
/* A failure of our own. */
void reply_errno(Request *r, int error);
/* Does r->tenant own it? */
bool sandbox_is_theirs(const Request *r, json_object *properties);
