/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ordered steps of a build, as E2B's clients and Dockerfiles have them: what each of them runs in the guest, and what it
 * changes for those behind it. Pure.
 *
 *      RUN      COMMAND [USER]                      by a login shell, in the directory and with the environment so far
 *      COPY     ARCHIVE PATH TARGET [OWNER [MODE]]  PATH of a tar archive that lies in the guest, and is removed behind it;
 *                                                   a directory is merged into TARGET, whose '/' at the end makes it one
 *      ENV      NAME VALUE...                       $NAME in a value is replaced by the guest's shell, nothing else is
 *      WORKDIR  PATH                                made where it is not there, its new part the user's
 *      USER     NAME ["true"]                       made where there is none; "true": may use sudo without a password
 *
 * User and directory behind the last step are those of the template's sandboxes; no step may lead to a directory whose path is
 * longer than the guest's kernel takes. */

#include <stddef.h>

#include "base/macros.h"

#define TEMPLATE_STEPS_MAX 256U
#define TEMPLATE_STEP_ARGS_MAX 256U
#define TEMPLATE_STEP_TEXT_MAX (128U * 1024U)  /* of all arguments of one */
#define TEMPLATE_CWD_TOO_LONG "the working directory that the steps come to is too long, 4095 bytes at most"

typedef enum StepKind {
        STEP_KIND_RUN,
        STEP_KIND_COPY,
        STEP_KIND_ENV,
        STEP_KIND_WORKDIR,
        STEP_KIND_USER,
        _STEP_KIND_MAX,
        _STEP_KIND_INVALID = -EINVAL,
} StepKind;

typedef struct TemplateStep {
        char *type;                /* "RUN" ... */
        char **args;               /* NULL-terminated */
} TemplateStep;

/* What the steps so far have come to. */
typedef struct StepState {
        char *user, *cwd;          /* NULL: root, and its home */
        char **env;                /* NAME=VALUE; NULL: nothing */
} StepState;

/* What a step runs. Borrows from the step and from the state, but for what is freed. */
typedef struct StepCommand {
        char *argv[16];
        const char *user, *cwd;
        bool with_env;             /* the state's */
        bool captured;             /* its output is for step_state_apply(), and not for people */
        char *script;              /* freed by step_command_done() */
} StepCommand;

const char *step_kind_to_string(StepKind k);
StepKind step_kind_from_string(const char *s);

/* What is wrong with it, for people; NULL when nothing is. */
const char *template_step_fault(const TemplateStep *s);
TemplateStep *template_steps_free(TemplateStep *l, size_t n);
int template_steps_copy(const TemplateStep *l, size_t n, TemplateStep **ret);
/* Where valid ones lead from cwd on, NULL: from root's home. -ENAMETOOLONG. */
int template_steps_check_cwd(const TemplateStep *l, size_t n, const char *cwd);

/* Of a valid one. */
int step_command_make(const TemplateStep *s, const StepState *state, StepCommand *ret);
void step_command_done(StepCommand *c);
/* Of any text, as a RUN has it: start and ready behind steps. */
void step_command_shell(const char *text, const StepState *state, StepCommand *ret);
/* Once it has succeeded. output: what a captured command printed. -EBADMSG, -ENAMETOOLONG. */
int step_state_apply(StepState *state, const TemplateStep *s, const char *output, size_t size);
int step_state_set(StepState *state, const char *user, const char *cwd, char **env);
void step_state_done(StepState *state);
