/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small things that every part of the bus front needs. Silent: nothing in here logs. */

#include <stdint.h>
#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "dbus/bus-errors.h"
#include "dbus/bus-names.h"

#define _cleanup_bus_error_ _cleanup_(sd_bus_error_free)
#define _cleanup_bus_message_ _cleanup_(sd_bus_message_unrefp)

/* A string that may go out on the bus: what fits it stays (base/utf8.h), any other byte becomes
 * \xNN. For what guests say. NULL without memory. */
char *bus_text(const void *text, size_t size);

char **strv_free(char **l);
static inline void strv_freep(char ***l) {
        strv_free(*l);
}
#define _cleanup_strv_ _cleanup_(strv_freep)

/* prefix/id into buf; the id of a path below prefix, or NULL. */
const char *bus_path_put(char buf[static CUBE_BUS_PATH_MAX], const char *prefix, const char *id);
const char *bus_path_id(const char *path, const char *prefix);

/* Answers a call that was kept: by error where that is set, else by an errno. Whether the caller is
 * still there does not matter. */
void bus_reply_error(sd_bus_message *call, const sd_bus_error *error, int r);

/* For a handler whose callback owns a reference to the call and answers it, unless starting that
 * failed (r < 0): 1, or r with the reference dropped. */
int bus_keep_call(sd_bus_message *call, int r);
