/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What cubed says, as JSON (dbus/client-json.h), to be found by name. */

#include <json-c/json.h>
#include <systemd/sd-bus.h>

#include "dbus/client-json.h"

/* Of an object of them; "", 0, NULL when it is not there, or of another type. Borrowed. */
const char *info_string(json_object *o, const char *name);
uint64_t info_u64(json_object *o, const char *name);
json_object *info_get(json_object *o, const char *name);

/* The properties of one object, at an a{sa{sv}}, if it has the interface: added to an array. */
int bus_object_to_json(sd_bus_message *m, const char *interface, json_object *ret);
/* The properties of all objects that have an interface, from the answer to GetManagedObjects, into an array. */
int bus_objects_to_json(sd_bus_message *m, const char *interface, json_object *ret);
