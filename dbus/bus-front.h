/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The server side of org.cubed.Cube1: hangs the manager's objects on its bus.
 *
 * One for the process. Attached once the manager has started up, so that the name appears when
 * everything behind it is there; detached before the manager goes.
 *
 * Properties and the ObjectManager are readable by everybody on the bus, since sd-bus asks nobody
 * there: what must not be known to all, environment and keys above all, never becomes a property. */

#include "daemon/manager.h"

/* Registers all objects, sets m->hooks, takes the bus name. -EEXIST when another cubed has it. */
int bus_front_attach(Manager *m);
void bus_front_detach(Manager *m);

/* Prints the introspection data of an interface, or of all when iface is NULL. -ENOENT. */
int bus_front_introspect(const char *iface);
