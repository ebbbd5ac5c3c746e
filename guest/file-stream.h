/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Streams that carry one file, in frames of at most AGENT_DATA_MAX bytes (file-read.c,
 * file-write.c). Regular files are read and written a piece at a time between other events; what
 * can block, e.g. a FIFO, is opened non-blocking and waited for. */

#include "guest/stream.h"

void read_stream_start(Stream *s, Request *q);
void write_stream_start(Stream *s, Request *q);
