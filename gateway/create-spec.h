/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a client wants of a new sandbox, checked. Pure: borrows from the body. */

#include "gateway/body.h"
#include "gateway/config.h"
#include "gateway/network.h"

#define TIMEOUT_V1 15
#define TIMEOUT_V2 300

typedef struct CreateSpec {
        const char *template_ref;
        uint64_t timeout_usec;
        bool secure;
        const char *on_timeout;       /* of cubed: kill, pause, pause-disk */
        bool auto_resume;             /* by whoever connects to it */
        json_object *metadata;        /* map of strings, or NULL */
        json_object *variables;       /* the same */
        NetworkSpec network;
} CreateSpec;

/* The variables of a body: 1; 0 and NULL: it says nothing of them. -EINVAL with error: 400. */
int variables_parse(json_object *body, json_object **ret, ErrorText *error);
/* -EINVAL with error: 400. */
int create_spec_parse(json_object *body, const GatewayConfig *config, bool v2, CreateSpec *ret, ErrorText *error);
/* The time-out of a body; least is what it must be at least, default_seconds < 0: it must be there. Too long is cut off or
 * refused. */
int timeout_parse(json_object *body, const char *name, const GatewayConfig *config, int64_t least, int64_t default_seconds,
                  bool cut, uint64_t *ret_usec, ErrorText *error);
