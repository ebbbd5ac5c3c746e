/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Starts a cube-vmm process behind a gate.
 *
 * vmm_spawn() forks a child that waits; its pid goes to PID 1, which puts it into the scope; then
 * vmm_gate_open() lets it go on: into the sandbox's network namespace, and into the program. Guest
 * memory is thus allocated in the scope and charged to it. Until then the child holds nothing but
 * the few descriptors below. It ends by itself when cubed dies with the gate shut.
 * The child is ours: sd_event_add_child_pidfd() reaps it. */

#include <sys/types.h>

#include "base/macros.h"

typedef struct VmmSpawn {
        const char *path;      /* of cube-vmm */
        uint32_t uid;          /* which it takes for itself, gid too */
        int listen_fd;         /* control socket, becomes VMM_LISTEN_FD */
        int netns_fd;          /* -1: stays in ours (tests) */
        const char *journal;   /* socket for its log lines; NULL: our stderr */
} VmmSpawn;

typedef struct VmmProcess {
        pid_t pid;
        int pid_fd;
        int gate_fd;           /* write end; -EBADF once it is open */
        int status_fd;         /* read end: why it could not be started, if so */
} VmmProcess;

#define VMM_PROCESS_INIT ((VmmProcess) { .pid_fd = -EBADF, .gate_fd = -EBADF, .status_fd = -EBADF })

/* Everything in spawn is borrowed. */
int vmm_spawn(const VmmSpawn *spawn, VmmProcess *ret);
int vmm_gate_open(VmmProcess *p);
/* Closes what is open; a child behind a shut gate ends. */
void vmm_process_done(VmmProcess *p);
/* What went wrong between gate and program, as text with errno; false when nothing was told. */
bool vmm_process_failure(const VmmProcess *p, const char **ret_step, int *ret_errno);
