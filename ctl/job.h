/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Watching a job to its end: its log and steps on stderr, Ctrl-C cancels it. */

#include <systemd/sd-bus.h>

#include "base/macros.h"

/* path: of the job. what and subject: for "Failed to WHAT SUBJECT". print: the id of the template that was made,
 * on stdout. */
int job_follow(sd_bus *bus, const char *path, const char *what, const char *subject, bool print);
