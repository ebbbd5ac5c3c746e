/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Output of a program whose reader was left behind in another epoch. It is read and thrown away, so that
 * the program goes on: it neither waits for a reader that never comes nor sees the pipe break.
 *
 * Owned by the process whose fd it reads. Ends by itself when the output does, or by drain_stop(). */

#include "guest/loop.h"

typedef struct Drain Drain;

struct Drain {
        LoopSource source;
        void (*ended)(Drain *d, void *userdata);
        void *userdata;
};

int drain_start(Drain *d, Loop *l, int fd, void (*ended)(Drain *d, void *userdata), void *userdata);
void drain_stop(Drain *d);

static inline bool drain_active(const Drain *d) {
        return d->source.loop;
}
