/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Time, entropy and identity: what makes a guest, cold-booted or restored, one of its own. */

#include "guest/agent.h"
#include "guest/request.h"

void handle_claim(Agent *a, Request *q, Reply reply);
void handle_set_time(Agent *a, Request *q, Reply reply);
void handle_add_entropy(Agent *a, Request *q, Reply reply);
