/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* envd's service filesystem.Filesystem. Done as root; the user of a call says whose home a relative path is in, and whose the
 * directories become that it makes. */

#include "guest/agent.h"
#include "guest/connect.h"

/* The last of each has no path. */
extern const ConnectMethod filesystem_methods[];
extern const ConnectMethod watch_methods[];

/* The path in a member of the request, resolved. 0, or the call has failed. */
int filesystem_path(ConnectCall *call, json_object *request, const char *key, char **ret);

/* Watchers that are asked for their events: part of the agent, until a client removes them. */
void watchers_done(Agent *a);
