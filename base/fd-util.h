/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/macros.h"

int fd_set_nonblock(int fd, bool on);
int fd_set_cloexec(int fd, bool on);

/* The whole of size bytes or an error; -EPIPE at an early end. Restarts on EINTR. For blocking fds. */
int read_full(int fd, void *buf, size_t size);
int write_full(int fd, const void *buf, size_t size);

/* All that comes, of a blocking fd or of a small file, as a NUL-terminated string; -EFBIG above max. size may be NULL. */
int read_whole(int fd, size_t max, char **ret, size_t *ret_size);
int read_file(int dirfd, const char *path, size_t max, char **ret, size_t *ret_size);

/* One packet with descriptors attached (n_fds may be 0). The fds stay the caller's.
 * -EAGAIN when a non-blocking socket is full. */
int send_packet(int fd, const struct iovec *iov, size_t n_iov, const int *fds, size_t n_fds);

/* One packet. Bytes received; 0 at the end of the stream. *ret_n_fds descriptors (close-on-exec)
 * are the caller's from here, none at the end, of which an empty packet is one. -EMSGSIZE when packet or descriptors were
 * cut off (all that came is closed). */
ssize_t recv_packet(int fd, void *buf, size_t size, int *ret_fds, size_t max_fds, size_t *ret_n_fds);

void close_many(int *fds, size_t n);
