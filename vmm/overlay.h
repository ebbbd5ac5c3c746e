/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A disk: an immutable base file, and over it a private sparse file that holds what was written.
 *
 * Both are addressed 1:1, so there is no format and no metadata that a guest or a crash could damage:
 * a block that is data in the overlay file is the overlay's, a block that is a hole is the base's. A
 * bitmap in memory (one bit a block) caches that, rebuilt with SEEK_DATA. Blocks are 4 KiB, or larger where the
 * overlay's file system allocates in larger units, since SEEK_DATA can't tell apart what shares
 * one. A write that covers a block only in part takes the rest from the base. Behind the end of
 * the base the disk reads as zeros.
 *
 * A guest's discard must not punch holes (the base would show through again), so discard isn't offered.
 *
 * Only plain read and write calls, never a mapping: a file that shrinks or a full disk is an error, not
 * a signal. Owned by its block device, used by one thread. */

#include <sys/uio.h>

#include "base/macros.h"

#define OVERLAY_BLOCK_MIN KIB(4)
#define OVERLAY_BLOCK_MAX MIB(2)
/* Bitmap of at most 32 MiB. */
#define OVERLAY_DISK_BYTES_MAX GIB(1024)

typedef struct Overlay {
        int base_fd;              /* -EBADF: none, all zeros */
        int overlay_fd;           /* -EBADF: read-only */
        uint64_t base_bytes;
        uint64_t disk_bytes;
        uint32_t block;           /* bytes, a power of two */
        uint64_t n_blocks;
        uint64_t *present;        /* bit set: the overlay's */
        uint8_t *bounce;          /* one block */
} Overlay;

/* Takes both fds in any case. The overlay file is best made disk_bytes long and sparse by whoever
 * creates it; it may be shorter. -EOPNOTSUPP when its file system can't tell a hole from data. */
int overlay_init(Overlay *o, int base_fd, int overlay_fd, uint64_t base_bytes, uint64_t disk_bytes);
void overlay_done(Overlay *o);

/* Another file takes the overlay's place: opened first, aside, then put in by overlay_swap(). Takes fd in any
 * case; ret borrows o's base. */
int overlay_open_other(const Overlay *o, int fd, Overlay *ret);
void overlay_swap(Overlay *o, Overlay *other);
/* Drops what overlay_open_other() made, or what overlay_swap() put out. */
void overlay_done_other(Overlay *other);

/* All of it or an error; [offset, offset + bytes of iov) must lie inside the disk, else -EINVAL. */
int overlay_read(Overlay *o, const struct iovec *iov, size_t n_iov, uint64_t offset);
int overlay_write(Overlay *o, const struct iovec *iov, size_t n_iov, uint64_t offset);
int overlay_flush(Overlay *o);

uint64_t overlay_present_bytes(const Overlay *o);
