/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The properties of a bus object, as `show` prints them: NAME=VALUE, or JSON. */

#include <json-c/json.h>
#include <systemd/sd-bus.h>

#include "base/macros.h"
#include "dbus/client-json.h"

/* All properties of one interface as a JSON object, in cubed's order. */
int properties_get(sd_bus *bus, const char *path, const char *interface, json_object **ret, sd_bus_error *error);
/* Those that -p asks for, as text. Takes nothing. */
int properties_print(json_object *o);
/* The same as a new object for --json. NULL without memory. */
json_object *properties_select(json_object *o);

const char *properties_string(json_object *o, const char *name);
uint64_t properties_u64(json_object *o, const char *name);
