/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A disk that fails: fsync() of one process gives EIO when a test says so, as it does when what was written could not be.
 *
 * The process asks for it before exec; it and its threads are judged by a thread of the test, call by call. Owned by the test. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct FailingFsync {
        int listener;
        pthread_t thread;
        atomic_uint n_calls;
        atomic_uint fail_at; /* the call, counted from 1, that fails; 0: none */
} FailingFsync;

/* In the child, which sends the listener over that socket. */
int failing_fsync_confine(int socket_fd);
/* In the test: takes it from there. */
int failing_fsync_start(FailingFsync *f, int socket_fd);
/* From now on: the nth call fails, none does with 0. */
void failing_fsync_set(FailingFsync *f, unsigned nth);
/* Behind the end of the process. */
void failing_fsync_stop(FailingFsync *f);
