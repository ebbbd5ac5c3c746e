/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One step of `template build`, as --step has it:
 *
 *      RUN [--user=USER] COMMAND
 *      COPY [--chown=USER[:GROUP]] [--chmod=MODE] SRC DEST
 *      ENV NAME=VALUE
 *      WORKDIR DIR
 *      USER [--sudo] NAME
 *
 * cubed looks at what its arguments say; here they are only taken apart. */

#include "base/macros.h"

#define BUILD_STEP_ARGS_MAX 5U

typedef struct BuildStep {
        const char *type;                  /* "RUN" ... */
        char *args[BUILD_STEP_ARGS_MAX];   /* as cubed has them; of a COPY the first two are still to come */
        size_t n_args;
        char *source;                      /* of a COPY: here */
} BuildStep;

/* Says what is wrong. */
int build_step_parse(const char *s, BuildStep *ret);
void build_step_done(BuildStep *s);
