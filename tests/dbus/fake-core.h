/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A stand-in for daemon/ behind the bus front, for tests of dbus/ and ctl/ without systemd or KVM.
 * A sandbox is an agent-harness process: the real agent's code on this machine, over unix sockets.
 * There are the templates "python", "online" and "special" of root, the latter two with a network, "daemon" whose programs run as that in /usr, "private" of uid 1 and
 * "own-special" of nobody. uid 2 may open special ranges. uid 3 and 5 (games) may name tenants; of those of uid 3 "acme" and
 * "evil" have a template "tools" each, and acme may open special ranges. With $FAKE_GUEST_NETWORK
 * each guest has a network of its own, and where the file $FAKE_ENVD_TAKEN is there, envd's port is taken. */

#include "daemon/manager.h"

int fake_manager_new(sd_event *event, sd_bus *bus, const char *harness, Manager **ret);
void fake_manager_free(Manager *m);
/* Its guest boots again; done once it is claimed. */
int fake_guest_reboot(Sandbox *s, SandboxDone done, void *userdata);
/* CLOCK_REALTIME */
uint64_t fake_now_usec(void);
