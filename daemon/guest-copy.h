/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A file or a directory of the host that is put into a guest: cube-image reads it, with the rights of who asked for
 * that, and tells what it comes upon (daemon/copy-proto.h); cubed asks the agent for it. A file's bytes go from
 * cube-image to the VMM by a stream of their own.
 *
 * Owned by whoever started it; freeing it ends it, half-way if need be: without waiting for cube-image's end, of which
 * nobody is told any more. */

#include "daemon/sandbox.h"
#include "daemon/template.h"

typedef struct GuestCopy GuestCopy;

typedef struct GuestCopySpec {
        const TemplateTools *tools;
        int fd;                    /* borrowed; never looked at here: behind it may stand a FUSE file system */
        const char *path;          /* in the guest, absolute */
        uid_t uid;                 /* whose rights reading it takes */
} GuestCopySpec;

/* Once, from the loop; the GuestCopy may be freed in it. message: for people, when r is negative. */
typedef void (*GuestCopyDone)(GuestCopy *c, int r, const char *message, void *userdata);

int guest_copy_start(Sandbox *s, const GuestCopySpec *spec, GuestCopyDone done, void *userdata, GuestCopy **ret);
GuestCopy *guest_copy_free(GuestCopy *c);
