/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of container images, read as Docker reads them: python:3 is docker.io/library/python:3. Pure; what clients send. */

#include "base/macros.h"

#define IMAGE_REGISTRY_MAX 262U
#define IMAGE_NAME_MAX 768U

typedef struct ImageRef {
        char registry[IMAGE_REGISTRY_MAX]; /* HOST[:PORT] */
        char name[IMAGE_NAME_MAX];         /* REGISTRY/REPOSITORY, then :TAG, or @DIGEST without the tag */
} ImageRef;

/* -EINVAL: no such name. */
int image_ref_parse(const char *text, ImageRef *ret);
/* list: words, each HOST[:PORT], *.DOMAIN[:PORT], or * for all. */
bool image_registry_listed(const char *list, const char *registry);
