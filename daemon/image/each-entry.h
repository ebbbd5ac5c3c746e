/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The entries of one directory, "." and ".." left out; symbolic links to directories are none. */

#include "base/macros.h"

/* Negative ends it. */
typedef int (*EntryFn)(int dir_fd, const char *name, void *userdata);

/* path below parent_fd. 0 too when there is none. */
int for_each_entry(int parent_fd, const char *path, EntryFn fn, void *userdata);
