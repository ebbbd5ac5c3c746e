/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How a process in a guest ended: the body of an AGENT_EXITED frame. */

#include <stdint.h>
#include <sys/types.h>

#include "base/macros.h"

typedef struct AgentExit {
        bool timed_out;
        bool signaled;
        uint32_t status;   /* exit status, or the signal's number */
} AgentExit;

/* -EBADMSG. */
int agent_exit_parse(const uint8_t *body, size_t size, AgentExit *ret);
