/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One direction of a raw stream: bytes from one non-blocking fd into another.
 *
 * Copies through a buffer that all pumps share. Only what the sink did not take is kept, at most
 * PUMP_CHUNK bytes, and nothing more is read before that is gone: this is the backpressure, and an
 * idle pump holds no memory. (splice() would save a copy between pipe and socket, but loses its
 * point on vsock, which copies anyway, and does not work alike on terminals across kernels.) */

#include "base/macros.h"

#define PUMP_CHUNK (64U * 1024U)

typedef struct Pump {
        uint8_t *pending;
        size_t size;
        size_t offset;
        bool ended;     /* the source has ended */
} Pump;

typedef enum PumpResult {
        PUMP_WAIT,      /* source empty or sink full */
        PUMP_AGAIN,     /* did its share, there may be more */
        PUMP_END,       /* the source ended and all of it is delivered */
        PUMP_BROKEN,    /* the sink takes nothing any more */
} PumpResult;

PumpResult pump_run(Pump *p, int source, int sink);
/* Puts bytes in front of what the source has; the pump must hold none. */
int pump_push(Pump *p, const void *data, size_t size);
void pump_done(Pump *p);
