/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Transient scopes: the only file that knows how PID 1 is asked for one.
 *
 * A Units object, owned by the Manager, listens to PID 1 on the system bus. A Scope is made by
 * scope_start() (or scope_adopt() after a restart) and owned by its sandbox; it holds a reference
 * on the unit, so that Result stays readable when the processes are gone. scope_free() drops that
 * and forgets callbacks that have not run yet. All calls are asynchronous.
 *
 * The unit has no Controller: systemctl stop, a stopping slice and a host that shuts down send
 * SIGTERM to the VMM directly, which asks its guest to power off; it works the same while cubed is
 * down. For that KillMode has to be control-group: a scope has no main process, so that PID 1
 * would go to SIGKILL at once with mixed. No RuntimeMaxUSec either: PID 1 does not let it be
 * changed later, and lifetimes are extended. */

#include <systemd/sd-bus.h>

#include "base/macros.h"

typedef struct Units Units;
typedef struct Scope Scope;

typedef struct ScopeSpec {
        const char *name;          /* cube-<id>.scope */
        const char *slice;         /* cube.slice */
        const char *description;
        pid_t pid;
        uint64_t mem_max;          /* bytes; UINT64_MAX = none, as below */
        uint64_t mem_swap_max;
        uint64_t cpu_quota_usec;   /* per second */
        uint64_t tasks_max;
        uint64_t stop_timeout_usec; /* from SIGTERM to SIGKILL */
} ScopeSpec;

/* RAM of the guest and what it costs on top: page tables, devices' buffers, the VMM itself. */
uint64_t scope_memory_max(uint64_t mem_bytes);

int units_new(sd_bus *bus, Units **ret);
Units *units_free(Units *u);
DEFINE_CLEANUP(Units *, units_free);

/* The processes are in the scope and its limits hold; or error says why not. */
typedef void (*ScopeDone)(Scope *s, const sd_bus_error *error, void *userdata);
int scope_start(Units *u, const ScopeSpec *spec, ScopeDone done, void *userdata, Scope **ret);
/* One that is there: takes a reference again. */
int scope_adopt(Units *u, const char *name, Scope **ret);
Scope *scope_free(Scope *s);
DEFINE_CLEANUP(Scope *, scope_free);
const char *scope_name(const Scope *s);

/* Changes limits; 0 leaves one as it is. One change at a time. */
int scope_set_limits(Scope *s, uint64_t mem_max, uint64_t mem_swap_max, uint64_t cpu_quota_usec, ScopeDone done, void *userdata);
/* SIGKILL to everything in it. */
int scope_kill(Scope *s);
/* The same for one that nobody has taken over. */
int units_kill(Units *u, const char *name);
/* Once its processes are gone: "success", "oom-kill", "timeout", ...; "" when PID 1 won't say. */
typedef void (*ScopeResult)(Scope *s, const char *result, void *userdata);
int scope_get_result(Scope *s, ScopeResult done, void *userdata);
