/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cube-gateway, which the bus starts when it is called. The bus waits for its name, also after it has ended with an error:
 * whoever calls it first looks at what becomes of its unit meanwhile. */

#include <systemd/sd-bus.h>

/* Returns when it runs, or as soon as it does not: then *ret_why is what it said of that, fresh, or NULL where error says it. */
int gateway_start(sd_bus *bus, char **ret_why, sd_bus_error *error);
