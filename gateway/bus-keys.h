/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* org.cubed.Gateway1: making, listing and revoking API keys, which root may, and others as polkit says. A new key goes out
 * in the answer to whoever made it, and nowhere else. Owned by the Gateway. */

#include "gateway/gateway.h"

int bus_keys_new(Gateway *g, BusKeys **ret);
BusKeys *bus_keys_free(BusKeys *b);
