/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The control stream to the host and the answers that are still owed on it.
 *
 * A Reply is the right to answer one request. It stays valid for ever, but once the stream that the
 * request came over is gone, answers to it are dropped: request ids mean nothing on the next one.
 * While the host does not read, no further request is taken, and long listings wait. */

#include "base/frame.h"
#include "base/tlv.h"
#include "guest/loop.h"
#include "guest/outbox.h"

typedef struct Agent Agent;
typedef struct Task Task;

typedef enum ControlState {
        CONTROL_WAITING,        /* for the next attempt to connect */
        CONTROL_CONNECTING,
        CONTROL_CONNECTED,
} ControlState;

typedef struct Control {
        Agent *agent;
        ControlState state;
        int fd;
        LoopSource source;
        LoopSource retry;
        uint64_t retry_usec;
        FrameParser parser;
        Outbox out;
        uint64_t generation;    /* counts connections */
        Task *tasks;            /* requests that take many steps */
        unsigned n_tasks;
} Control;

typedef struct Reply {
        Control *control;
        uint64_t generation;
        uint32_t id;
} Reply;

int control_start(Control *c, Agent *a);
void control_done(Control *c);
/* Whether a long answer should pause until the host has read some. */
bool control_congested(const Control *c);
void control_flush(Control *c);
/* Whether all that the host has sent so far was read, a claim among it. */
bool control_settled(const Control *c);

bool reply_wanted(const Reply *r);
/* body may be NULL; errors of the writer become an AGENT_ERROR. */
void reply_ok(const Reply *r, const TlvWriter *body);
void reply_more(const Reply *r, const TlvWriter *body);
/* error is a negative errno; the message names the thing and says what it was about. */
void reply_error(const Reply *r, int error, const char *format, ...) _printf_(3, 4);
void reply_result(const Reply *r, int result, const char *what);
