/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Moves bytes from one descriptor to another in a thread of its own, by blocking reads and writes:
 * what the reader does not take, the writer is not asked for, and the flags of a terminal that we
 * share with a shell stay as they are.
 *
 * At the end of its input it closes `to` when that is a guest's (half-close), at the end of its
 * output it shuts `from` down when that is a guest's, so that the other side learns of both. The
 * owner reads the counters; whoever is still blocked when the process exits is simply gone. */

#include <pthread.h>
#include <stdatomic.h>

#include "base/macros.h"

typedef struct Pump {
        int from, to;
        int done_fd;            /* eventfd that is written at the end */
        bool to_guest;          /* else from guest */
        pthread_t thread;
        _Atomic uint64_t moved;
        _Atomic bool busy;      /* from before a read until all of it is written */
        _Atomic bool done;
} Pump;

int pump_start(Pump *p, int from, int to, bool to_guest, int done_fd);

/* Whether something lies there that was not yet written, however long the thread has not had a CPU. What is written
 * after this was asked is in `moved`. */
bool pump_has_more(const Pump *p);
