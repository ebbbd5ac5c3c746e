/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The file that a sandbox's disk writes to: sparse, sandboxes/<id>.disk in the state directory.
 *
 * A snapshot takes it as its layer, by a second name, and the guest goes on with a new one. It has a name all the time:
 * one without can't be given one by a restarted cubed, to whose mount namespace a descriptor that a VMM hands back does
 * not belong. The file goes with the sandbox, or, when cubed was away then, when cubed starts. */

#include "daemon/sandbox.h"

/* In the state directory. */
#define SANDBOXES_DIRECTORY "sandboxes"

int sandbox_prepare_overlay(Sandbox *s, sd_bus_error *error);

/* An empty one, sandboxes/<id>.new, for the guest to go on with. There is one at a time. */
int sandbox_new_overlay(const Sandbox *s, int *ret_fd);
/* The guest writes to it from now on. The one before keeps the names that snapshots gave it. */
void sandbox_take_overlay(Sandbox *s, int fd);
/* It does not. */
void sandbox_drop_new_overlay(const Sandbox *s);

/* theirs: that which its VMM says it writes to. Opens the same by its name; -ESTALE when it has none.
 * 1: it was the new one, and is the current one from here. */
int sandbox_find_overlay(Sandbox *s, int theirs);
/* At once, for there may be another one soon. */
void sandbox_unlink_overlay(const Sandbox *s);
/* In the background. */
void sandbox_remove_overlay(const Sandbox *s);
/* What sandboxes left that are gone. */
void manager_remove_left_overlays(Manager *m);
