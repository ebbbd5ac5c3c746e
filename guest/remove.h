/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* REMOVE: a file, or a whole tree in steps. Follows no symbolic link below the given path, and goes
 * by directory descriptors: what a guest moves or replaces meanwhile leads nowhere else. Only one
 * descriptor is held, however deep the tree. */

#include "guest/agent.h"
#include "guest/request.h"

void handle_remove(Agent *a, Request *q, Reply reply);
