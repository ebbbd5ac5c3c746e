/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Carries out the steps of a build in its guest, one after the other.
 *
 * Owned by whoever started it; freeing it forgets the command that runs. What the steps came to stays with it. */

#include "daemon/guest-command.h"
#include "daemon/template-steps.h"

typedef struct GuestSteps GuestSteps;

typedef struct GuestStepsCallbacks {
        /* Before step n, from 0 on, and once behind the last. done: the one before it was just run. True: something is to be done
         * first, and guest_steps_go_on() follows, unless it is freed. */
        bool (*between)(size_t n, bool done, void *userdata);
        bool (*begin)(size_t n, void *userdata);            /* false: it was freed in there */
        /* What they print; not terminated. */
        void (*log)(const char *text, size_t size, void *userdata);
        /* Once, from the loop; it may be freed in it. what: of which one error or exit tell ("step 2 of 5 (RUN)"); NULL: all
         * have succeeded. */
        void (*done)(GuestSteps *g, const char *what, const sd_bus_error *error, const AgentExit *exit, void *userdata);
} GuestStepsCallbacks;

/* steps are borrowed, state is copied. The first n_done are not run, and state is what they came to. 1: there are none, and done
 * does not follow. *ret is set before the first callback, also when it fails. */
int guest_steps_start(Sandbox *s, const TemplateStep *steps, size_t n, size_t n_done, const StepState *state,
                      const GuestStepsCallbacks *callbacks, void *userdata, GuestSteps **ret);
void guest_steps_go_on(GuestSteps *g);
GuestSteps *guest_steps_free(GuestSteps *g);
const StepState *guest_steps_state(const GuestSteps *g);
