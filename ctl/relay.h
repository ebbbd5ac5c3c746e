/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Moves bytes both ways between two sockets on an event loop, with one bounded buffer each way and
 * half-close. Frees itself, and closes both, once both ways have ended. */

#include <systemd/sd-event.h>

#include "base/macros.h"

/* Takes both descriptors, also when it fails. ended (may be NULL) runs when it is over. */
int relay_start(sd_event *event, int a, int b, void (*ended)(void *userdata), void *userdata);
