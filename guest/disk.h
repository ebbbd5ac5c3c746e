/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The guest's disks: vda holds the read-only root image (squashfs or erofs), vdb, which may be
 * absent, the ext4 file system for everything that is written. Root is an overlay of the two;
 * without vdb its upper layer is in memory.
 *
 * The writable file system stays reachable by an fd of its own after the switch of root: it is
 * grown and finally frozen through that. */

#include "base/macros.h"

#define DISK_MESSAGE_MAX 200

/* Mounts root at the given empty directory, using directories beside it for the layers. */
int disk_mount_root(const char *root, char ret_message[static DISK_MESSAGE_MAX]);
/* To the device's size, at most to max_bytes. 0 too when there is nothing to grow. */
int disk_grow(uint64_t max_bytes);
/* Of the writable file system's root, -EBADF without one. */
int disk_fd(void);
/* Nothing can be written from here on, and what is on the disk is clean. Without a disk that is so anyway. */
int disk_freeze(void);
int disk_thaw(void);
