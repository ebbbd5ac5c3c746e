/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Puts a file or the tree below a directory into a guest, whose agent is asked by way of cubed
 * (daemon/guest-copy.h): a packet of socket_fd is a request of base/agent-proto.h, with the stream of a file behind the
 * answer. Modes stay, but for set-id bits, and symbolic links are what they are; all of it belongs to root there.
 * What is neither is an error, as anything that can't be read: a copy is whole, or it failed. */

#include "daemon/image/fault.h"

/* path: where it goes in the guest, absolute. Directories above it are made. */
int copy_in(int source_fd, int socket_fd, const char *path, Fault *fault);
