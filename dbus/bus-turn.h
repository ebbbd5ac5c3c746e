/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls about the same thing, one after the other, in the order in which they came.
 *
 * A call that has the turn keeps it while it waits for a policy (bus-policy.h), and after its handler when it says so; all
 * others wait, and come again one by one. One that asks polkit lets the others go first: a person may take his time. */

#include <systemd/sd-bus.h>

#include "base/macros.h"

/* 1: it has the turn. 0: it waits: return 1 from the handler, and the message will come again. Negative with error set
 * when there are too many. */
int bus_turn_take(sd_bus_message *m, const char *what, sd_bus_error *error);
/* The turn goes on until bus_turn_end(). */
void bus_turn_keep(sd_bus_message *m);
/* Nothing, when it has none. */
void bus_turn_end(sd_bus_message *m);
/* At the end of a handler: unless it was kept, or the message waits for a policy. */
void bus_turn_leave(sd_bus_message *m);
/* m is in the bus's queue again: its turn is over when its handler is never reached. */
void bus_turn_watch(sd_bus_message *m);
/* Nothing that waits comes again. */
void bus_turns_detach(void);
