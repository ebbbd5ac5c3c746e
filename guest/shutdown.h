/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The guest's way down: ask every process to end, give them a moment, end the rest, power off. */

#include "guest/agent.h"
#include "guest/request.h"

void handle_poweroff(Agent *a, Request *q, Reply reply);
void shutdown_start(Agent *a);
/* Nobody is left to wait for. */
void shutdown_no_children(Agent *a);
