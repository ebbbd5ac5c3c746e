/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The host's end of a stream that carries a file, AGENT_STREAM_WRITE or AGENT_STREAM_READ behind its
 * answer. For blocking descriptors; stateless. */

#include <stdint.h>

/* Sends the rest of fd as the file's contents, then waits until it is in place. size: what the agent was
 * told, or UINT64_MAX. On an error of the guest *ret_message is its text, to be freed, or NULL. -ENODATA: fd ended
 * before size. */
int agent_file_send(int stream, int fd, uint64_t size, char **ret_message);
/* Receives the file's contents into fd, and no more than max bytes (-EFBIG). */
int agent_file_receive(int stream, int fd, uint64_t max, char **ret_message);
