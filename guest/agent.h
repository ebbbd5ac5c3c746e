/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent: everything that lives as long as the guest does, owned by main().
 *
 * It serves its host over one control stream (control.h), which comes back when it breaks, and any
 * number of streams (stream.h), each a connection of its own. Users' programs are Processes
 * (process.h). Nothing that a host asks for is served before it has claimed the guest, i.e. given
 * it time, entropy and a name of its own. */

#include <sys/types.h>

#include "guest/control.h"
#include "guest/loop.h"

typedef struct Process Process;
typedef struct Stream Stream;

typedef struct Agent {
        Loop loop;
        Control control;
        bool claimed;
        bool stopping;          /* power-off has begun, nothing new is taken */

        int listen_fd;
        LoopSource listen_source;
        Stream *streams;

        int signal_fd;
        LoopSource signal_source;
        Process *processes;     /* newest first */
        unsigned n_live;
        unsigned n_exited;

        LoopSource shutdown_timer;
        unsigned shutdown_step;
} Agent;

/* Serves until the guest goes down. */
int agent_run(void);
