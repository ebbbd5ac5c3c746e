/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An object in a listing, (oa{sv}): its path, and those of its properties that are named, as Properties.Get would tell them. */

#include <systemd/sd-bus.h>

typedef struct BusRow {
        const sd_bus_vtable *vtable;
        const char *interface;
        const char *const *names;  /* of properties that it has */
        size_t n_names;
} BusRow;

int bus_row_append(sd_bus_message *m, const BusRow *row, const char *path, void *object);
