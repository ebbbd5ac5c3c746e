/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A stream to a TCP server in the guest that listens on a loopback address. */

#include "guest/stream.h"

void tcp_stream_start(Stream *s, Request *q);
