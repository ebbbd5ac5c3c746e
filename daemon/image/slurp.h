/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A whole file or stream in memory, NUL-terminated behind its end; memory grows with what really
 * arrives. -EFBIG above max. The buffer is the caller's. */

#include "base/macros.h"

int slurp(int fd, size_t max, uint8_t **ret, size_t *ret_size);
/* A path below a directory; symbolic links lead nowhere, neither do special files. */
int slurp_open_at(int dir_fd, const char *path, int *ret_fd);
int slurp_at(int dir_fd, const char *path, size_t max, uint8_t **ret, size_t *ret_size);
