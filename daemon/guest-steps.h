/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Carries out the steps of a build in its guest, one after the other.
 *
 * Owned by whoever started it; freeing it forgets the command that runs. What the steps came to stays with it. */

#include "daemon/guest-command.h"
#include "daemon/template-steps.h"

typedef struct GuestSteps GuestSteps;

typedef struct GuestStepsCallbacks {
        bool (*begin)(size_t n, void *userdata);            /* from 0 on; false: it was freed in there */
        /* What they print; not terminated. */
        void (*log)(const char *text, size_t size, void *userdata);
        /* Once, from the loop; it may be freed in it. what: of which one error or exit tell ("step 2 of 5 (RUN)"); NULL: all
         * have succeeded. */
        void (*done)(GuestSteps *g, const char *what, const sd_bus_error *error, const AgentExit *exit, void *userdata);
} GuestStepsCallbacks;

/* steps are borrowed, state is copied. 1: there are none, and done does not follow. *ret is set before the first callback, also
 * when it fails. */
int guest_steps_start(Sandbox *s, const TemplateStep *steps, size_t n, const StepState *state,
                      const GuestStepsCallbacks *callbacks, void *userdata, GuestSteps **ret);
GuestSteps *guest_steps_free(GuestSteps *g);
const StepState *guest_steps_state(const GuestSteps *g);
