/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who a sender on the bus is. The bus driver is asked once for each client, asynchronously, and
 * the answer kept until that client has left: a unique name is never given to another one.
 *
 * A message whose sender is not known yet is put back into the bus's queue once the answer is
 * there, and is dispatched anew: its handler starts from the beginning and looks everything up
 * again. Owned by the bus front. */

#include <sys/types.h>
#include <systemd/sd-bus.h>

#include "base/macros.h"

typedef struct BusSenders BusSenders;

int bus_senders_new(sd_bus *bus, BusSenders **ret);
BusSenders *bus_senders_free(BusSenders *s);

/* 1 and the uid; 0 when it was asked for and the message will come again (return 1 from the handler);
 * negative with error set. */
int bus_senders_get(BusSenders *s, sd_bus_message *m, uid_t *ret, sd_bus_error *error);
void bus_senders_gone(BusSenders *s, const char *unique_name);
