/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* LIST_DIRECTORY: answered in several frames, of which the next one is made only when the host has
 * read the last ones. In the order of the file system; entries that vanish meanwhile are left out. */

#include "guest/agent.h"
#include "guest/request.h"

void handle_list_directory(Agent *a, Request *q, Reply reply);
