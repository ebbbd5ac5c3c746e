/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How programs in the sandboxes of a template are run where nobody says otherwise: what the container
 * image that it was built from says of environment, user and working directory. A plain value. */

#include <json-c/json.h>

#include "base/macros.h"

/* Bytes; longer ones are not read again. */
#define EXEC_USER_MAX 255U
#define EXEC_CWD_MAX 4095U

typedef struct ExecDefaults {
        char **env;                /* NAME=VALUE, NULL-terminated; NULL: none */
        char *user, *cwd;          /* cwd is absolute; NULL: as without an image */
} ExecDefaults;

void exec_defaults_done(ExecDefaults *d);
/* ret is empty. */
int exec_defaults_copy(const ExecDefaults *d, ExecDefaults *ret);
bool exec_defaults_empty(const ExecDefaults *d);
/* User and cwd are told on the bus. */
bool exec_defaults_fit_bus(const ExecDefaults *d);
/* In a report of cube-image and in template.json. -EBADMSG when it is not what these write. */
int exec_defaults_to_json(const ExecDefaults *d, json_object **ret);
int exec_defaults_from_json(json_object *o, ExecDefaults *ret);
