/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `show` and `status` have in common. */

#include <json-c/json.h>
#include <systemd/sd-bus.h>

#include "base/macros.h"

bool error_is_gone(const sd_bus_error *error);
/* The properties of a sandbox, or what the journal has of one that is gone. Says what went wrong. */
int sandbox_properties(sd_bus *bus, const char *id, json_object **ret);
/* What GetStatistics tells, silently. ask: for a password, where it takes one. */
int sandbox_statistics(sd_bus *bus, const char *id, bool ask, json_object **ret);
