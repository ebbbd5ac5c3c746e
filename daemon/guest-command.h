/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A program in a guest that cubed itself runs: what it prints comes as text, its end as a status.
 *
 * Owned by whoever started it. Its stdin is empty. Freeing it forgets the program, which goes on as
 * long as its sandbox does. Callbacks come from the loop; the GuestCommand may be freed in each. */

#include "base/agent-exit.h"
#include "daemon/sandbox.h"

typedef struct GuestCommand GuestCommand;

typedef struct GuestCommandCallbacks {
        void (*started)(GuestCommand *c, void *userdata);   /* may be NULL */
        /* Of stdout and stderr, as it comes; not terminated, and what a guest wrote. May be NULL. */
        void (*output)(GuestCommand *c, const char *text, size_t size, void *userdata);
        /* Once. error: it could not be started, or it is not known any more what became of it; else how it ended. */
        void (*done)(GuestCommand *c, const sd_bus_error *error, const AgentExit *exit, void *userdata);
} GuestCommandCallbacks;

/* callbacks: for as long as it lives. */
int guest_command_start(Sandbox *s, const ExecSpec *spec, const GuestCommandCallbacks *callbacks, void *userdata,
                        GuestCommand **ret, sd_bus_error *error);
GuestCommand *guest_command_free(GuestCommand *c);
