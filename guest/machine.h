/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the agent does to the machine it is PID 1 of. Tests put recorders in its place. */

#include "base/macros.h"

#define MACHINE_MESSAGE_MAX 160

/* Makes the kernel kill a process that takes all memory, in place of a guest that does nothing any
 * more but read program text again and again: there is no swap. */
void machine_set_memory_pressure(void);
int machine_set_time(uint64_t realtime_nsec);
int machine_add_entropy(const void *data, size_t size);
int machine_set_hostname(const char *name);
/* text: for /etc/resolv.conf, if the image has none. */
int machine_set_nameservers(const char *text);
/* For programs that look for E2B's files of who they run in; "" where that is not said. */
int machine_set_e2b(const char *sandbox, const char *template);
/* Brings CPUs 1 to n - 1 online. */
int machine_set_cpus(uint32_t n, char ret_message[static MACHINE_MESSAGE_MAX]);
/* Grows the writable file system to what its disk has, at most to max_bytes. */
int machine_grow_disk(uint64_t max_bytes);
/* The file that machine_freeze() needs besides the standard ones, -EBADF for none. */
int machine_disk_fd(void);
/* Leaves little in memory that a snapshot would have to hold: writes out what is dirty, drops what can be
 * read again, moves what is used together. disk: nothing can be written to the writable file system from
 * here on, and what is on its disk is clean. Takes as long as the disk does: for a process of its own. */
int machine_freeze(bool disk);
/* 0 too when it isn't frozen. */
int machine_thaw(void);
_noreturn_ void machine_poweroff(void);
