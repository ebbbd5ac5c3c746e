/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The layers of a container image as one clean tar stream: read twice, unpacked nowhere.
 *
 * The first reading finds out what is left of each layer (oci-tree.h) and whether all of it is what
 * the image says; only then the second one passes on what is left. */

#include "daemon/image/oci-layout.h"

/* Of an image whose layers are open. position_fd: a file whose position grows to twice image->bytes, or none. */
int oci_merge(const OciImage *image, int out_fd, int position_fd, uint64_t max_bytes, Fault *fault);
