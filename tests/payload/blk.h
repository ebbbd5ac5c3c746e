/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vda and vdb, a sector at a time, waiting for each. */

#include "virtio.h"

#define SECTOR_BYTES 512U

enum { BLK_READ, BLK_WRITE, BLK_FLUSH = 4 };

/* The device's status byte (0 = done), or -1 when there is no such disk. data: SECTOR_BYTES. */
int blk_request(unsigned disk, uint32_t type, uint64_t sector, void *data);
/* In sectors; 0 without the disk. */
uint64_t blk_capacity(unsigned disk);
