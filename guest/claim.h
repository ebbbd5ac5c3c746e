/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Time, entropy and identity: what makes a guest, cold-booted or restored, one of its own.
 *
 * Each claim begins an epoch. The first is that of the boot; any other says that this is a copy of the guest
 * that the one before was for, or the same one put back in time. What ran goes on, without the clients
 * that it had; nothing new begins before the claim is answered. A claim can come at any moment, in the
 * middle of another too, and one that failed can be repeated. */

#include "guest/agent.h"
#include "guest/request.h"

void handle_claim(Agent *a, Request *q, Reply reply);
void handle_set_time(Agent *a, Request *q, Reply reply);
void handle_add_entropy(Agent *a, Request *q, Reply reply);
