/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Hears of the end of one sandbox, and why it was: for who has a connection into it that may break. */

#include <systemd/sd-bus.h>

#include "base/macros.h"

typedef struct Removal {
        sd_bus *bus;
        const char *id;
        sd_bus_slot *slot;
        char *reason;   /* NULL: not heard of one */
} Removal;

/* The id stays the caller's. Says what went wrong. */
int removal_watch(Removal *x, sd_bus *bus, const char *id);
/* A connection broke: most likely the sandbox has ended, and the bus says why in a moment. NULL when it does not. */
const char *removal_reason(Removal *x);
void removal_done(Removal *x);
