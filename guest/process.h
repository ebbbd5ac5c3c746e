/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Programs that the host started, from fork until nobody can ask about them any more.
 *
 * A process holds our ends of its standard streams until a stream is attached to each, so nothing
 * that it writes is lost, and it blocks when nobody reads. A stream that is abandoned at an epoch leaves
 * them open: input stays silent, and output is thrown away until somebody attaches again. After its exit the record stays for
 * late waiters, up to PROCESSES_EXITED_MAX of them; those that were waited for go first. Every other
 * child of PID 1 is an orphan, reaped and forgotten. */

#include "guest/agent.h"
#include "guest/drain.h"
#include "guest/list.h"
#include "guest/request.h"
#include "guest/spawn.h"

#define PROCESSES_LIVE_MAX 1024U
#define PROCESSES_EXITED_MAX 256U
#define PROCESS_STREAMS (AGENT_STREAM_PTY + 1)

typedef struct Waiter Waiter;

/* The program runs; or failure says why not, and the process is about to be freed. */
typedef void (*ProcessStarted)(Process *p, const SpawnFailure *failure);

/* A stream that waits for the exit; owned by the stream. */
struct Waiter {
        LIST_FIELDS(Waiter);
        Process *process;
        Stream *stream;                 /* NULL for who embeds it */
        void (*exited)(Waiter *w);
};

struct Process {
        LIST_FIELDS(Process);
        Agent *agent;
        pid_t pid;
        uid_t uid;
        char *name;                     /* argv[0] */
        bool pty;
        int fds[PROCESS_STREAMS];       /* ours, by AgentStream */
        const void *attached[PROCESS_STREAMS];  /* by whom */
        Drain drains[PROCESS_STREAMS];  /* of output whose reader was abandoned */
        Waiter *waiters;

        bool starting;                  /* no exec yet, and who asked has not heard */
        int status_fd;
        LoopSource status_source;
        ProcessStarted started;
        Reply reply;                    /* for who asked over the control stream */
        void *owner;                    /* for who asked otherwise */

        LoopSource timer;
        bool timed_out;
        bool exited;
        bool waited;
        uint32_t exit_code;
        uint32_t exit_signal;
};

/* Starts the program of q, as u. p->started hears how it went; a negative errno: nobody does. */
int process_start(Agent *a, Request *q, const User *u, ProcessStarted started, const Reply *reply, void *owner);
int processes_init(Agent *a);
void processes_done(Agent *a);
Process *process_find(Agent *a, uint32_t pid);
/* The kernel has given this number to a new child. */
void process_forget_pid(Agent *a, pid_t pid);

/* Hands out the fd for one stream of the process, which stays the process's. -EINVAL when it has no
 * such stream, -EBUSY when that is attached already, -EPIPE when it is closed. */
int process_attach(Process *p, uint32_t which, const void *who, int *ret_fd);
void process_detach(Process *p, uint32_t which);
/* Detaches a stream whose client is another copy's: nothing of it is to reach the program. */
void process_abandon(Process *p, uint32_t which);
void process_close(Process *p, uint32_t which);
/* What a terminal's other end going away means to those who use it. */
void process_hang_up(Process *p);
void process_add_waiter(Process *p, Waiter *w);
void process_remove_waiter(Waiter *w);

void handle_exec(Agent *a, Request *q, Reply reply);
void handle_signal(Agent *a, Request *q, Reply reply);
void handle_resize(Agent *a, Request *q, Reply reply);
void handle_list_processes(Agent *a, Request *q, Reply reply);
