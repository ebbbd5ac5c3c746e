/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The directory in which an image is put together: its path, what is in it, and its end. */

#include <stdint.h>

/* Below $TMPDIR, or /var/tmp; *ret is the caller's. */
int work_directory_make(char **ret);
/* Bytes of the files in it, as they lie on disk. */
uint64_t work_directory_size(const char *path);
void work_directory_remove(const char *path);
