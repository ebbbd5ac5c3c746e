/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What makes a sandbox answer E2B's SDKs: its guest serves envd once it is told to, with the token that is derived from its id,
 * the variables of its sandbox, and the user that E2B's templates have. Its memory keeps all of that; one that booted from its
 * disk knows nothing any more. */

#include "gateway/cubed.h"

typedef struct ServeSpec {
        const char *id, *template_id;
        bool secure;                /* clients have to show a token */
        bool keep;                  /* variables that its memory brought along */
        bool unbind;                /* it was made bound to us, and outlives us once it serves: its client is being told */
        json_object *variables;     /* map of strings, or NULL */
} ServeSpec;

/* Of the request's sandbox, whose properties are known. */
ServeSpec serve_spec(const Request *r, bool keep, json_object *variables);
void serve_envd(Request *r, const ServeSpec *s, CubedDone done);
/* The answer where the request's sandbox is not served. */
void reply_not_served(Request *r, const sd_bus_error *error);
/* The status of a sandbox that is not served for that reason, and what to say of it. */
unsigned serve_status(const sd_bus_error *error);
#define NOT_SERVED "Sandbox %s could not be made ready for its clients: %s"
