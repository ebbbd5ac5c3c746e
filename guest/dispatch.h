/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which function answers which control request, and which of them need a claimed guest. */

#include "guest/agent.h"
#include "guest/request.h"

void dispatch_request(Agent *a, uint16_t type, Request *q, Reply reply);
