/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A guest that does what no driver would, against the VMM that runs it. It is the payload guest (tests/payload) with one
 * program more: "attack NAME" does what NAME says and prints what came of it, a line for each thing that was attacked.
 * An attack takes the agent's connections down, and with them its own streams: "last" prints what the one before did.
 * tests/native/test_hostile_guest.py knows what has to come of it. A new attack is a function and a line in a table of
 * the file that it belongs to. */

#include "raw.h"
#include "smp.h"

typedef struct Attack {
        const char *name;
        void (*run)(void);
} Attack;

/* Each ends with one that has no name. */
extern const Attack queue_attacks[], register_attacks[], device_attacks[], vsock_attacks[], race_attacks[], flood_attacks[],
        machine_attacks[];

/* A line of the answer: what was attacked, the queue if that is not negative, and what came of it. */
void say(const char *what, int queue, const char *outcome);
void say_number(const char *what, const char *which, uint64_t v);
/* The device works: it is opened anew and does a request on each queue that is read. Says "alive" or what not. */
void say_alive(const Target *t);
