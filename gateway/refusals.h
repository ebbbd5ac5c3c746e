/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which refused requests have an entry of their own in the audit trail: without a valid key anybody may send as many as he
 * likes, and with one beyond its rate. Those beyond a number are counted, and told by their number within seconds, at the
 * latest at the end. Owned by the Gateway. */

#include <systemd/sd-event.h>

#include "gateway/log.h"

typedef struct Refusals Refusals;

int refusals_new(sd_event *event, Refusals **ret);
/* Tells what is left to be told. Returns NULL. */
Refusals *refusals_free(Refusals *r);

/* Counts one, of a key ("": none is known). Returns whether it is to be told by itself. */
bool refusals_admit(Refusals *r, const char *key);
