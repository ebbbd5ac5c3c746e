/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* By which what a build comes to is found again: hashes of all that it depends on. Pure.
 *
 * A point is a state of the disk that a later build can begin with: as it was formatted, or as the template below left it; once
 * everything is copied; behind each command of setup or step. Its key is that of the point before it and what has been done since.
 * Files that a COPY unpacks belong to that step, and are brought into the guest just before it.
 *
 * What decides over a point: owner and tenant, root image, or template below; size of the disk; defaults of the image, user,
 * directory and environment of the commands; whom the guest may talk to; kernel and command line, which a step may build
 * something for; all that was copied and run before. Not agent, memory or CPUs: what a step does to the disk depends on them no
 * more than on the weather.
 * What decides over a template: its last point, kernel, initramfs (and so the agent), command line, this cubed, and all that a
 * template is described by but its names. */

#include "daemon/template-params.h"

typedef enum TemplatePointKind {
        TEMPLATE_POINT_DISK,
        TEMPLATE_POINT_COPIES,
        TEMPLATE_POINT_SETUP,
        TEMPLATE_POINT_STEP,
} TemplatePointKind;

typedef struct TemplatePoint {
        TemplatePointKind kind;
        size_t n;                  /* of the setup commands or steps, from 0 on */
        char key[SHA256_HEX_SIZE];
} TemplatePoint;

/* Borrowed. */
typedef struct TemplateKeySource {
        const Template *template;  /* in the making: what its sandboxes are to be like */
        const TemplateWarmSpec *warm; /* NULL: no guest is run */
        const char (*copy_sums)[SHA256_HEX_SIZE]; /* for each of its copies */
        const char *base_id;       /* of the template below; NULL: none */
        const char *root_sum;      /* of the root image */
        const char *kernel_sum, *initramfs_sum;
        const char *kernel_command_line; /* that all guests of this host get; NULL: none */
        const SandboxPolicy *build_policy; /* NULL: nobody */
} TemplateKeySource;

/* Of the copies that belong to a step: which. A directory of archives belongs to the first that unpacks one of them. SIZE_MAX: to none, it is made before all commands. */
size_t template_copy_step(const TemplateWarmSpec *w, size_t copy);

/* From the disk on, TEMPLATE_POINTS_MAX at most. */
#define TEMPLATE_POINTS_MAX (2U + TEMPLATE_SETUP_MAX + TEMPLATE_STEPS_MAX)
int template_points_make(const TemplateKeySource *s, TemplatePoint **ret, size_t *ret_n);
/* last: the last point's. */
int template_key_make(const TemplateKeySource *s, const char *last, char ret[static SHA256_HEX_SIZE]);
/* Of a root image that is made of an input with this hash, given in that way, by a build of that owner: what somebody else's
 * input was said to be counts for nobody else. */
void template_input_key(const Template *t, const char *type, const char *sum, char ret[static SHA256_HEX_SIZE]);
