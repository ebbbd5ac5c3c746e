/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Ranges of one file into another, through a fixed buffer at most. Stateless. All of it or an error; -EIO when a
 * file ends too early. */

#include <stdint.h>

#include "base/macros.h"

int pread_all(int fd, void *buffer, size_t size, uint64_t offset);
int pwrite_all(int fd, const void *buffer, size_t size, uint64_t offset);

typedef struct FileRange {
        uint64_t from, to, bytes;
} FileRange;

int copy_range(int from_fd, int to_fd, FileRange r);
/* Where from has holes, to stays as it is. */
int copy_range_sparse(int from_fd, int to_fd, FileRange r);

/* The first data at or behind offset. *ret_data = *ret_end = UINT64_MAX: none. */
int find_data(int fd, uint64_t offset, uint64_t *ret_data, uint64_t *ret_end);
/* -EINVAL unless it is a regular file, and, if it shall be, empty. */
int check_regular(int fd, bool empty, uint64_t *ret_size);
