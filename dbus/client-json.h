/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Values of D-Bus as JSON, for clients that print or pass them on: an a{sv} of properties is an object. Numbers keep all
 * their bits. */

#include <json-c/json.h>
#include <systemd/sd-bus.h>

/* The next complete value of a message; *ret is the caller's. -ENXIO: there is none. -ELOOP: nested too deep. Descriptors are
 * null. */
int bus_to_json(sd_bus_message *m, json_object **ret);
