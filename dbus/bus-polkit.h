/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Asks polkit whether the sender of a message may do something, without waiting.
 *
 * The question is kept beside the message; when the answer comes the message goes back into the
 * bus's queue, is dispatched once more and finds the answer. So nothing that a handler looked
 * up lives across the wait. An answer counts only for the action and details that were asked for;
 * a message may need several. Owned by the bus front. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "base/macros.h"

#define POLKIT_ACTION(name) "org.cubed.cube1." name
#define POLKIT_CREATE POLKIT_ACTION("create")
#define POLKIT_LIST POLKIT_ACTION("list")
#define POLKIT_MANAGE POLKIT_ACTION("manage")
#define POLKIT_EXEC POLKIT_ACTION("exec")
#define POLKIT_CONSOLE POLKIT_ACTION("console")
#define POLKIT_TEMPLATES POLKIT_ACTION("manage-templates")
#define POLKIT_SPECIAL POLKIT_ACTION("open-special-ranges")

typedef struct Polkit Polkit;

int polkit_new(sd_bus *bus, sd_event *event, Polkit **ret);
Polkit *polkit_free(Polkit *p);

/* 1: allowed. 0: asked, the message will come again. Negative with error set: denied, or no polkit.
 * actor is the sender's uid. key and value (may be NULL) are what rules see as action.lookup(key).
 * quiet never has the user prompted for a password. */
int polkit_check(Polkit *p, sd_bus_message *m, uid_t actor, const char *action, const char *key, const char *value,
                 bool quiet, sd_bus_error *error);
/* Around another wait of the message: what was granted for it stays. Release it once it is in the bus's queue again, or
 * was answered. */
void polkit_hold(Polkit *p, sd_bus_message *m);
void polkit_release(Polkit *p, sd_bus_message *m);
/* The client left: its questions have nobody to answer to. */
void polkit_client_gone(Polkit *p, const char *unique_name);
