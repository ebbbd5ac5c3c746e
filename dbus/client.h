/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The client's side of org.cubed.Cube1, for cubectl and cube-gateway: connecting, calls that may
 * take long, errors in words.
 *
 * Needs nothing of the daemon. Silent: errors are returned, with text for people where the other side
 * gave one. */

#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-bus.h>

#include "base/agent-exit.h"
#include "base/macros.h"
#include "dbus/bus-errors.h"
#include "dbus/bus-names.h"

/* To the system bus, or by ssh to that of host (which then passes no descriptors). */
int client_connect(const char *host, bool interactive, sd_bus **ret);

/* Called now and then while a call is under way. */
typedef void (*ClientTick)(void *userdata, uint64_t waited_usec);
/* Sends and waits for ever: cubed answers every call, or leaves the bus, which ends them all. Other
 * messages are dispatched meanwhile. tick may be NULL. */
int client_call(sd_bus *bus, sd_bus_message *call, ClientTick tick, void *userdata, sd_bus_message **ret_reply,
                sd_bus_error *error);

/* What went wrong and what to do, in words; borrowed from error or static. */
const char *client_error_text(const sd_bus_error *error, int r);

/* Path of an object, into buf. */
const char *client_path(char buf[static CUBE_BUS_PATH_MAX], const char *prefix, const char *id);

/* As a shell has it: the status, 128 + signal, 124 after a time-out. */
int client_exit_status(const AgentExit *e);
