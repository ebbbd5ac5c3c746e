/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The control socket: cubed's requests to the machine, the machine's events to cubed.
 *
 * Listens on a socket that cubed has bound. One peer at a time, root only; others wait in the
 * listener's backlog. The machine runs on without one: then the agent's frames are dropped, but the
 * HELLO of the next peer tells that the agent is there. One per process, never freed. */

#include "vmm/machine.h"

typedef struct Control Control;

/* allowed_uid: the uid the process was started as, which may connect as root may. */
int control_new(Loop *loop, Machine *machine, int listen_fd, uid_t allowed_uid, Control **ret, ErrorText *e);
