/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The target of a request, taken apart: segments of its path, each decoded after it was split off ("team%2Fname" is one),
 * and the pairs of its query in their order. Hostile input: bounded, no NUL gets in. Owned by whoever parsed it. */

#include <stddef.h>

#include "base/macros.h"

#define URL_SEGMENTS_MAX 8U
#define URL_PAIRS_MAX 32U

typedef struct UrlPair {
        const char *name, *value;
} UrlPair;

typedef struct Url {
        char *text;                                /* holds what the others point into */
        const char *segments[URL_SEGMENTS_MAX];
        size_t n_segments;
        UrlPair pairs[URL_PAIRS_MAX];
        size_t n_pairs;
} Url;

/* -EINVAL: not an absolute path, a wrong %-escape, an encoded NUL; -E2BIG: too many parts. */
int url_parse(const char *target, Url *ret);
void url_done(Url *u);
/* The first of that name, or NULL. */
const char *url_query(const Url *u, const char *name);

/* In place; plus: '+' is a blank. -EINVAL. */
int url_decode(char *s, bool plus);
