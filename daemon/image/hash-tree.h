/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A hash of what a build is given: of a file its bytes from its position on; of a directory names, kinds, modes, owners, extended
 * attributes, targets of links and bytes of all that is in it, in the order of the names. Times do not count: a tree that was
 * checked out again is the same tree. */

#include "daemon/image/fault.h"
#include "daemon/template-files.h"

/* Moves no position. Of what can be read but once (a pipe) it is "". */
int hash_tree(int fd, char ret[static SHA256_HEX_SIZE], Fault *fault);
