/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The entries below a directory, one at a time: each directory's in the order of their names, what is in a directory right
 * behind it. Only the directory that it begins with may be a link. One that can't be read, or is gone, counts as empty. */

#include "base/macros.h"

typedef struct WalkLevel {
        char *path;
        char **names;
        size_t n_names, next;
} WalkLevel;

typedef struct Walk {
        WalkLevel *levels;
        size_t n_levels, allocated;
} Walk;

/* -ENOENT, -ENOTDIR, -ELOOP.. when the directory itself can't be read. */
int walk_begin(Walk *w, const char *path);
/* 1: *ret_path is the next, the caller's; 0: there is none */
int walk_next(Walk *w, char **ret_path);
/* Goes into the directory that came last. */
int walk_descend(Walk *w, const char *path);
/* How many levels below the first the last entry was: 1 for those in it. */
static inline size_t walk_depth(const Walk *w) {
        return w->n_levels;
}
void walk_done(Walk *w);
#define _cleanup_walk_ _cleanup_(walk_done)
