/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A hash of what a build is given: of a file its bytes from its position on; of a directory names, kinds, modes, owners, extended
 * attributes, targets of links and bytes of all that is in it, in the order of the names. Times do not count: a tree that was
 * checked out again is the same tree. */

#include "base/macros.h"
#include "daemon/template-files.h"

typedef enum HashUse {
        HASH_ROOT,                 /* a root file system (rootfs.h): of a directory that something is mounted on, the directory alone */
        HASH_COPY,                 /* into a guest (copy-in.h): of a file the mode, too */
} HashUse;

/* Moves no position. Of what can be read but once (a pipe) it is "". */
int hash_tree(int fd, HashUse use, char ret[static SHA256_HEX_SIZE]);
