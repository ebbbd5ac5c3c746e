/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The agent: everything that lives as long as the guest does, owned by main().
 *
 * It serves its host over one control stream (control.h), which comes back when it breaks, and any
 * number of streams (stream.h), each a connection of its own. Users' programs are Processes
 * (process.h). Nothing that a host asks for is served before it has claimed the guest, i.e. given
 * it time, entropy and a name of its own. Each claim begins an epoch (claim.h). */

#include <sys/types.h>

#include "guest/control.h"
#include "guest/envd.h"
#include "guest/freeze.h"
#include "guest/hooks.h"
#include "guest/loop.h"
#include "guest/loopback.h"
#include "guest/net.h"
#include "guest/usage.h"

typedef struct Process Process;
typedef struct Program Program;
typedef struct Watcher Watcher;
typedef struct Stream Stream;

typedef struct Agent {
        Loop loop;
        Control control;
        bool claimed;
        NetConfig network;      /* as the last claim that had one set it */
        Loopback loopback;
        Envd envd;
        uint64_t epoch;         /* claims that were answered */
        CpuTimes claim_cpu;     /* at the last one */
        Reply claim_reply;      /* owed while the hooks run */
        Hooks hooks;
        Freeze freeze;
        bool frozen;            /* or about to be: the agent writes no file */
        Helper *helpers;
        bool stopping;          /* power-off has begun, nothing new is taken */

        int listen_fd;
        LoopSource listen_source;
        Stream *streams;
        bool doubts;            /* some stream is in doubt */

        int signal_fd;
        LoopSource signal_source;
        Program *programs;      /* of envd's clients, newest first */
        Watcher *watchers;      /* of envd's clients */
        unsigned n_watchers;
        Process *processes;     /* newest first */
        unsigned n_live;
        unsigned n_exited;

        LoopSource shutdown_timer;
        unsigned shutdown_step;
} Agent;

/* Serves until the guest goes down. hooks: the directory, and how long all in it may take. loopback: whether servers on
 * 127.0.0.1 can be reached from outside, which concerns all of the network namespace. */
int agent_run(const char *hooks_path, uint64_t hooks_usec, bool loopback);
