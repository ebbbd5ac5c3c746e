/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What clients say when they have a template built: which one it is to be, and then of what. Pure; borrows from the body. */

#include "gateway/body.h"
#include "gateway/template-names.h"

#define BUILD_TAGS_MAX 14U          /* with DEFAULT_TAG: as many aliases as cubed takes with a build */
#define BUILD_STEPS_MAX 200U
#define FILES_HASH_SIZE 65U
#define BUILD_PATH_MAX 1024U

typedef struct BuildRequest {
        char name[TEMPLATE_REF_MAX];
        char tags[BUILD_TAGS_MAX][TEMPLATE_REF_MAX]; /* DEFAULT_TAG where none was asked for */
        size_t n_tags;
        uint32_t cpus;              /* 0: as the template below has it */
        uint64_t memory;            /* bytes; 0: the same */
} BuildRequest;

typedef struct BuildStep {
        const char *type;
        json_object *args;          /* of strings */
        const char *files_hash;     /* of a COPY, NULL of all others */
        char source[BUILD_PATH_MAX]; /* of a COPY: the path in its archive, "." for all of it */
} BuildStep;

typedef struct BuildSpec {
        const char *from_image, *from_template; /* one of them */
        const char *user, *password; /* at its registry; NULL: nobody's */
        const char *start, *ready;  /* NULL: none */
        BuildStep *steps;           /* owned */
        size_t n_steps;
        bool force;                 /* nothing of it is taken from earlier builds */
        size_t force_step;          /* nor of this step, from 1 on, and of those behind it; 0: of all of them it may be */
} BuildSpec;

/* The host's template that stands for an image: base for E2B's own, NAME:TAG for one of Docker's. -ENOENT: it has a registry,
 * or a name that no template can have. */
int image_template(const char *image, TemplateRef *ret);
bool files_hash_valid(const char *s);
/* Tags of a client, without those that come twice. -EINVAL with error. */
int tags_parse(json_object *body, char ret[static BUILD_TAGS_MAX][TEMPLATE_REF_MAX], size_t *n, ErrorText *error);
int build_request_parse(json_object *body, const char *tenant, BuildRequest *ret, ErrorText *error);
/* -EINVAL with error. */
int build_spec_parse(json_object *body, BuildSpec *ret, ErrorText *error);
void build_spec_done(BuildSpec *s);
