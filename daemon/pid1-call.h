/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls to PID 1 that outlive it executing itself anew. systemctl daemon-reexec, which every update of systemd does, closes
 * PID 1's connection to the bus with what it has not read and what it has not sent: the caller gets an error from the bus,
 * and does not learn whether it was heard. Such a call is made again until PID 1 answers, so it must be one that
 * may be heard twice. When it can't be made again, the reply says so as an answer of PID 1 would.
 *
 * A Pid1Call belongs to who made it, who frees it once its reply has run, or before to hear no more of it. */

#include <systemd/sd-bus.h>

#include "base/macros.h"

#define PID1_NAME "org.freedesktop.systemd1"
#define PID1_PATH "/org/freedesktop/systemd1"
#define PID1_MANAGER "org.freedesktop.systemd1.Manager"

typedef struct Pid1Call Pid1Call;

/* m is not sealed yet; the call has a reference of its own on it. */
int pid1_call(sd_bus_message *m, sd_bus_message_handler_t reply, void *userdata, Pid1Call **ret);
/* To be asked once more after it was answered. */
int pid1_call_again(Pid1Call *c);
Pid1Call *pid1_call_free(Pid1Call *c);
DEFINE_CLEANUP(Pid1Call *, pid1_call_free);
