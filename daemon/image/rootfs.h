/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The root file system that somebody gave, as a clean tar stream for sqfstar.
 *
 * A tar of any compression or a directory goes in; a pax archive comes out with paths below the
 * root, numeric owners, times that squashfs can hold, extended attributes, and without ACLs and
 * file flags. What it may unpack to is bounded. */

#include "daemon/image/fault.h"

/* How the root file system is given. */
typedef enum RootfsType {
        ROOTFS_TAR,
        ROOTFS_DIRECTORY,
        ROOTFS_SQUASHFS,
        ROOTFS_EROFS,
        _ROOTFS_TYPE_MAX,
        _ROOTFS_TYPE_INVALID = -EINVAL,
} RootfsType;

const char *rootfs_type_to_string(RootfsType t);
RootfsType rootfs_type_from_string(const char *s);

/* A stream that can't be looked into without consuming it counts as a tar. */
int rootfs_probe(int fd, RootfsType *ret, uint64_t *ret_bytes, Fault *fault);

int rootfs_tar_to_tar(int in_fd, int out_fd, uint64_t max_bytes, Fault *fault);
/* Changes the working directory. With map_uid, what belongs to that uid belongs to root in the archive. */
int rootfs_directory_to_tar(int dir_fd, int out_fd, uint64_t max_bytes, const uid_t *map_uid, Fault *fault);
/* A ready image, with zeros behind it up to a multiple of 4 KiB. */
int rootfs_copy_image(int in_fd, int out_fd, uint64_t max_bytes, Fault *fault);
