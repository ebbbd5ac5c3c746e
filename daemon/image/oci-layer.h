/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One packed layer of an image, read as an archive while the checksums of what is packed and of what it unpacks to are made.
 * Owned by its reader. */

#include <archive.h>

#include "daemon/image/oci-layout.h"

typedef struct OciLayer OciLayer;

/* From the beginning of fd, which is borrowed as name is: "layer 2 of 3". position_fd: a file whose position tells how much
 * was read, or none. */
int oci_layer_open(int fd, const OciBlob *b, const char *name, int position_fd, OciLayer **ret, Fault *fault);
OciLayer *oci_layer_free(OciLayer *l);
DEFINE_CLEANUP(OciLayer *, oci_layer_free);

struct archive *oci_layer_archive(const OciLayer *l);
/* Reads what is left of it. Whatever was read before counts only if this finds it to be what it should be. */
int oci_layer_finish(OciLayer *l);
/* The archive can't be read on: because it is not what it should be, or it never was any good. */
int oci_layer_broken(OciLayer *l);
