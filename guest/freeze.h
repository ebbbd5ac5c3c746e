/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* AGENT_FREEZE: makes the guest ready to be saved, and if asked to keeps its disk as it is then. The
 * work is done by a helper. While the file system is frozen whatever writes to it would stop for good, PID 1
 * too: the agent takes no request then that could touch it, and ends what is under way. */

#include "guest/control.h"
#include "guest/helper.h"

typedef struct Request Request;

typedef struct Freeze {
        Helper helper;
        Reply reply;            /* owed while the helper runs */
        Reply thaw_reply;       /* owed behind that */
        bool thaw_owed;
        bool disk;
} Freeze;

/* Undoes it, whether it was done or is under way. */
int freeze_end(Agent *a);

void handle_freeze(Agent *a, Request *q, Reply reply);
void handle_thaw(Agent *a, Request *q, Reply reply);
