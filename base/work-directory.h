/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A directory for what has to lie somewhere while a program works; who made it removes it. */

#include <stdint.h>

/* $TMPDIR, or /var/tmp: /tmp may be memory. */
const char *work_directory_above(void);
/* PREFIX-xxxxxx in there. *ret is the caller's. */
int work_directory_make(const char *prefix, char **ret);
/* Bytes of the files in it, as they lie on disk. */
uint64_t work_directory_size(const char *path);
/* With all that is in it; frees the path. NULL is fine. */
char *work_directory_remove(char *path);
