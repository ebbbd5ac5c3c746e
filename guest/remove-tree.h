/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A file or a whole tree that is being removed, in steps: whoever embeds this takes the next one when he likes. Links are
 * never followed, nor a directory that moves away meanwhile. */

#include <dirent.h>
#include <sys/types.h>

#include "base/macros.h"

/* A directory between the given path and the present one. */
typedef struct RemovalLevel {
        dev_t dev;
        ino_t ino;      /* of the directory that holds it */
        char *name;     /* in there */
} RemovalLevel;

typedef struct TreeRemoval {
        char *path;     /* absolute; set by the owner */
        DIR *here;
        RemovalLevel *levels;
        size_t n_levels, allocated;
} TreeRemoval;

/* 1: a tree is to be removed, 0: it is gone */
int tree_removal_begin(TreeRemoval *x, bool recursive);
/* 1: there may be more, 0: all is gone */
int tree_removal_next(TreeRemoval *x);
void tree_removal_done(TreeRemoval *x);
/* Where it is now, for messages. */
static inline const char *tree_removal_where(const TreeRemoval *x) {
        return x->n_levels > 0 ? x->levels[x->n_levels - 1].name : "it";
}
