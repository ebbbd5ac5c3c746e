/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A process of ours behind a socketpair: cube-netd or cube-stored, kept alive.
 *
 * Owned by the Manager. helper_start() runs the program with its end of the socketpair as fd 3;
 * each start hands our end to attach(). A program that dies is started again, at once the first
 * time and then more and more slowly; nothing of ours is lost with it but requests under way. */

#include <systemd/sd-event.h>

#include "base/macros.h"

#define HELPER_FD 3

typedef struct Helper Helper;

/* Takes fd on success. */
typedef int (*HelperAttach)(int fd, void *userdata);

int helper_start(sd_event *event, const char *name, HelperAttach attach, void *userdata, Helper **ret);
/* Ends the program too. */
Helper *helper_free(Helper *h);
DEFINE_CLEANUP(Helper *, helper_free);
pid_t helper_pid(const Helper *h);

/* Path of a program of ours: in $CUBED_LIBEXEC_DIR when root set that, else as installed. */
int helper_path(const char *name, char **ret);
