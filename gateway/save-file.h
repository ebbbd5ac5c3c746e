/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Replaces a file, mode 0600, as a whole: written beside it, synced, renamed, and its directory synced. Waits for the disk:
 * for what an admin does, not for requests. */
int save_file(const char *path, const void *data, size_t size);
/* All of it, with a NUL behind. -EFBIG: more than max. */
int load_file(const char *path, size_t max, char **ret, size_t *ret_size);
