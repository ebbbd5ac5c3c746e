/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What several operations share. */

#include "gateway/bus-json.h"
#include "gateway/create-spec.h"
#include "gateway/cubed.h"
#include "gateway/log.h"
#include "gateway/operations.h"
#include "gateway/routes.h"
#include "gateway/sandbox-json.h"

/* Answers 400 with error, or what else k < 0 is. */
void reply_bad(Request *r, int k, const ErrorText *error);
/* The sandbox of the request as create, connect and fork give it. */
void reply_sandbox(Request *r, unsigned status);
/* Answers 204, or with the error. */
void on_done_no_content(Request *r, sd_bus_message *reply, const sd_bus_error *error);
/* Refuses what cubed says of special ranges in a client's words, else as any other. */
void reply_policy_error(Request *r, const sd_bus_error *error);

/* op-snapshot.c: one of the tenant's, by its id or name as r->ref has it; found gets NULL when there is none. */
void snapshot_find(Request *r, void (*found)(Request *r, const char *snapshot));

/* op-template.c. Each of cubed's that the tenant may use, his own and the host's; then r goes on. each is false without memory. */
void template_each(Request *r, bool names_only, bool (*each)(Request *r, json_object *properties), void (*then)(Request *r));
/* All names into r->names, then goes on; or the request is answered. */
void template_names(Request *r, void (*then)(Request *r));
/* And the one that r->ref means into r->template, with an empty id when there is none. */
void template_find(Request *r, void (*then)(Request *r));
/* 0 with r->ref of what the path names, or the request is answered. */
int template_read_ref(Request *r);
/* Answers 404: r->ref means none. */
void reply_no_template(Request *r);
