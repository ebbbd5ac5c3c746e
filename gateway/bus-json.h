/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Values of D-Bus as JSON, to be found by name: an a{sv} of properties is an object. Numbers keep all their bits. */

#include <json-c/json.h>
#include <systemd/sd-bus.h>

/* The next complete value of a message; *ret is the caller's. -ENXIO: there is none. Descriptors are null. */
int bus_to_json(sd_bus_message *m, json_object **ret);

/* Of an object of them; "", 0, NULL when it is not there, or of another type. Borrowed. */
const char *info_string(json_object *o, const char *name);
uint64_t info_u64(json_object *o, const char *name);
json_object *info_get(json_object *o, const char *name);

/* The properties of all objects that have an interface, from the answer to GetManagedObjects, into an array. */
int bus_objects_to_json(sd_bus_message *m, const char *interface, json_object *ret);
