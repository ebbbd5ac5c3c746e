/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The system calls that each kind of thread may make; anything else ends the VMM (vmm/forbidden.h).
 *
 * All filters are compiled once, by seccomp_prepare(), before the VMM has read a byte from anybody.
 * A thread takes its own by seccomp_apply(), which allocates nothing. Filters stack and are
 * inherited: a narrower one can only take away, so the construction profile is a superset of all. */

#include "vmm/error.h"

typedef enum SeccompProfile {
        SECCOMP_CONSTRUCT,  /* main thread until the claim: makes the VM and its threads */
        SECCOMP_RUN,        /* main thread once guest code may run */
        SECCOMP_VCPU,
        SECCOMP_DISK,       /* file I/O of virtio-blk */
        _SECCOMP_PROFILE_MAX,
} SeccompProfile;

int seccomp_prepare(ErrorText *e);
/* For the calling thread. Nothing in a sanitizer build, whose runtime needs calls of its own. */
int seccomp_apply(SeccompProfile profile);
