/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What can't be done to a sandbox at the same time is done in turn: captures, changes of limits, and what
 * is built of them.
 *
 * A Turn lies in the object of who takes it. It starts in a round of the loop of its own, once all before
 * it have ended; from there its owner calls sandbox_end_turn() exactly once, unless the sandbox goes
 * first: then drop() is called instead, whether it had started or not. */

#include "daemon/sandbox.h"

/* Those who wait and the one that runs. */
#define TURNS_MAX 16U

typedef struct Turn {
        void (*start)(Sandbox *s, struct Turn *t);
        /* The sandbox ended, as error says; it goes once this is back. */
        void (*drop)(Sandbox *s, struct Turn *t, const sd_bus_error *error);
        bool started;
        struct Turn *next;
} Turn;

/* BUS_ERROR_BUSY when too many wait already. */
int sandbox_take_turn(Sandbox *s, Turn *t, sd_bus_error *error);
/* Before all others. None may have started. */
int sandbox_take_first_turn(Sandbox *s, Turn *t);
void sandbox_end_turn(Sandbox *s, Turn *t);
/* Until they are let go none starts. */
void sandbox_hold_turns(Sandbox *s);
int sandbox_let_turns_go(Sandbox *s);
void sandbox_drop_turns(Sandbox *s, const sd_bus_error *error);
