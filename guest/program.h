/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A program that a client of envd started: a Process (process.h) whose output goes to whoever listens, and to nobody when
 * nobody does. Owned by the agent's list, from its start until RETAIN_USEC after its end, so that a client that comes late
 * hears how it ended.
 *
 * It has ended when it has exited and its output has too, since a child of it may go on writing; after it was killed through
 * envd, or by its time-out, its own exit is enough. A listener that does not read holds the program up. */

#include "guest/connect.h"
#include "guest/process.h"

#define PROGRAM_OUTPUTS 2U

typedef struct Program Program;
typedef struct ProgramInput ProgramInput;

typedef struct ProgramOutput {
        Program *program;
        uint32_t which;         /* AgentStream */
        LoopSource source;
        bool open;
        bool held;              /* a listener has to read first */
} ProgramOutput;

struct Program {
        Waiter waiter;          /* first */
        LIST_FIELDS(Program);
        Agent *agent;
        Process *process;       /* while something of it is held */
        uint32_t pid;
        char *tag;
        json_object *config;    /* as it was asked for, until it has ended */
        bool pty, input, running, exited, killed, ended;
        uint32_t exit_code, exit_signal;
        ProgramOutput outputs[PROGRAM_OUTPUTS];
        LoopSource input_source;        /* of a pipe; a terminal's is that of its output */
        int input_fd;
        ProgramInput *inputs;   /* first to be written first */
        bool input_ends;        /* after those */
        ConnectCall *listeners;
        ConnectCall *killers;   /* of those that killed it: they are answered when it is gone */
        ConnectCall *starter;   /* of them, and its time-out is the program's */
        uint64_t timeout_usec;
        LoopSource timer;       /* time-out, then the time that it is still known */
};

/* Starts q's program for the call that asks, which listens to it; tag and config are taken. A negative errno: it was not
 * started, and the call has not been told. */
int program_start(ConnectCall *call, Request *q, char **tag, json_object **config);
void program_free(Program *p);
/* By number, or by tag when there is one; one that has ended only if asked for. */
Program *program_find(Agent *a, uint32_t pid, const char *tag, bool ended);
void program_listen(Program *p, ConnectCall *call);
int program_kill(Program *p, int signal);
/* Answers the call with an empty message once the program has exited. */
void program_await_exit(Program *p, ConnectCall *call);

/* Of a call whose data was written, or of an error that it met; it has to answer, or to take it for answered. */
typedef void (*ProgramWritten)(ConnectCall *call, const Program *p, int error);
/* Writes data, then tells, or fails the call. Takes data. */
void program_write(Program *p, ConnectCall *call, uint8_t **data, size_t size, ProgramWritten written);
/* Once all of that is written. */
void program_close_input(Program *p);
