/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Streams of a process: one of its standard streams or its terminal, and its exit. */

#include "guest/stream.h"

void process_stream_start(Stream *s, Request *q);
void wait_stream_start(Stream *s, Request *q);
