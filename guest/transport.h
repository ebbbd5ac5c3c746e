/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How the agent reaches its host: vsock in a guest (vsock.c), unix sockets in tests. */

#include <sys/types.h>

/* A non-blocking socket that takes the host's streams. */
int transport_listen(int *ret_fd);
/* One waiting connection, non-blocking; -EAGAIN when there is none, -EPERM for one that does not
 * come from the host (it is dropped). */
int transport_accept(int listen_fd, int *ret_fd);
/* A non-blocking socket for the control stream: 1 when connected, 0 when that is under way and
 * EPOLLOUT will tell. */
int transport_connect(int *ret_fd);

/* Says whether the other end has gone, and not only ended its own direction. */
int transport_peer_gone(int fd);
