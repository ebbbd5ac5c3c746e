/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A child of the agent's own, for what could keep PID 1 from serving: a hook, a sync.
 *
 * Embedded in whoever wants its result, and in the agent's list from helper_start() until its end was told
 * or it was given up. */

#include <sys/types.h>

#include "base/macros.h"
#include "guest/list.h"

typedef struct Agent Agent;
typedef struct Helper Helper;

struct Helper {
        LIST_FIELDS(Helper);
        Agent *agent;
        pid_t pid;              /* 0 while there is none */
        void (*exited)(Helper *h, int status);
};

/* Calls run in a child, with a session and default signals of its own and no open file beside the standard
 * ones and keep_fd; what it returns is the exit status. exited hears of the end. */
int helper_start(
        Helper *h, Agent *a, int (*run)(const void *userdata), const void *userdata, int keep_fd,
        void (*exited)(Helper *h, int status));
/* Kills it with all it started, and nobody hears of it any more. */
void helper_kill(Helper *h);
/* Kills it, and returns only once it has ended and that was told. */
void helper_end(Helper *h);
/* Says whether pid was a helper's. */
bool helper_reaped(Agent *a, pid_t pid, int status);
