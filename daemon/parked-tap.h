/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The tap of a paused sandbox, which cubed holds until its next VMM is given it: readable when somebody wants something
 * of the guest. What is readable is never read, but waits there for the guest. */

#include <sys/types.h>

/* A descriptor that a VMM, of which nothing is believed, handed out: 0 when it is the tap of that process's network
 * namespace, which the caller gets as well. -EBADF: it is something else. */
int parked_tap_check(int fd, pid_t vmm, int *ret_netns_fd);
/* Throws away what waits, and takes in TCP and UDP only: the namespace's own stack looks for neighbours and listeners. */
int parked_tap_begin(int fd);
/* Takes in whatever comes, as a VMM wants it. */
int parked_tap_end(int fd);
