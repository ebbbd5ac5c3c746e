/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sandboxes that were made for a client that is told of an error instead, and so never hears of them. Each is killed: at once, or,
 * where cubed is being restarted, as soon as it is back. */

#include "gateway/gateway.h"

int endings_new(sd_bus *bus, Endings **ret);
/* What waits for cubed is left to its time-out. */
Endings *endings_free(Endings *e);
void endings_add(Endings *e, const char *sandbox);
