/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Starts one program of the user: session, standard streams or terminal, user, directory, exec.
 *
 * spawn() forks and returns at once. What happens in the child until its exec is told over a
 * close-on-exec pipe: its end without a word means that the program runs, a SpawnFailure why it
 * does not. */

#include <sys/types.h>

#include "guest/request.h"
#include "guest/user.h"

#define SPAWN_DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

typedef struct SpawnFailure {
        int32_t error;          /* positive errno */
        uint32_t program;       /* 1: all was well but the program, which could not be run */
        char message[248];
} SpawnFailure;

typedef struct Spawned {
        pid_t pid;
        int status_fd;
        int stdin_fd, stdout_fd, stderr_fd;     /* our ends, non-blocking */
        int pty_fd;                             /* or the master */
} Spawned;

/* Signals, limits and umask as a program expects them; to be called in a child. */
void spawn_reset_child(void);
int spawn(const Request *q, const User *u, Spawned *ret);
void spawned_done(Spawned *s);
