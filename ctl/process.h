/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A process in a guest with our own stdin, stdout and stderr: started, fed, signalled, waited for. */

#include <systemd/sd-bus.h>

#include "ctl/exec-options.h"

/* Its exit status as a shell has it (124: time-out), or negative once it was said what is wrong. */
int process_run(sd_bus *bus, const char *id, const ExecOptions *options, char **argv);
