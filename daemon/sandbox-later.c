/* SPDX-License-Identifier: Apache-2.0 */

/* What sandboxes can't do yet: rollback and fork are refused. */

#include "daemon/sandbox.h"
#include "dbus/bus-errors.h"

static int refuse(const Sandbox *s, const char *what, sd_bus_error *error) {
        return sd_bus_error_setf(error, BUS_ERROR_HOST_UNSUPPORTED, "Sandbox %s: this cubed has no %s", s->id, what);
}

int sandbox_rollback(Sandbox *s, Snapshot *snapshot, SandboxDone done, void *userdata, sd_bus_error *error) {
        return refuse(s, "rollback", error);
}

int sandbox_fork(Sandbox *s, size_t n, const SandboxSpec *spec, ForkDone done, void *userdata, sd_bus_error *error) {
        return refuse(s, "fork", error);
}
