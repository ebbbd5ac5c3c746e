/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A disk: an immutable base file, over it layers that are written no more, and uppermost a private sparse
 * file that holds what is written now, the top.
 *
 * All are addressed 1:1, so there is no format and no metadata that a guest or a crash could damage:
 * what is data in a file is that file's, through a hole shows what lies beneath. A map in memory (four bits a
 * block of 4 KiB) says whose each block is; it is made with SEEK_DATA. A file may be shorter than the disk, which
 * may have grown: behind its end it reads as zeros.
 *
 * A file is written in units: its file system's blocks where those are larger, since SEEK_DATA can't tell
 * apart what shares one. Each file has its own, and each of its units is wholly its own or not at all. A write that
 * covers a unit only in part takes the rest from what lies beneath.
 *
 * The top is frozen by putting an empty file over it: the map stays as it is, nothing is copied.
 *
 * A guest's discard must not punch holes (what is beneath would show through again), so discard isn't offered.
 *
 * Only plain read and write calls, never a mapping: a file that shrinks or a full disk is an error, not
 * a signal. Owned by its block device, used by one thread. */

#include <sys/stat.h>
#include <sys/uio.h>

#include "base/vmm-proto.h"
#include "vmm/error.h"

#define OVERLAY_BLOCK KIB(4)
#define OVERLAY_UNIT_MAX MIB(2)
/* Map of at most 128 MiB, of which as much exists as is written over. */
#define OVERLAY_DISK_BYTES_MAX GIB(1024)
#define OVERLAY_FILES_MAX (VMM_DISK_LAYERS_MAX + 2)

/* What lies over a base. Each function that is given one takes its descriptors, in any case. */
typedef struct OverlayFds {
        int layer_fds[VMM_DISK_LAYERS_MAX]; /* read-only, the lowest first */
        unsigned n_layers;
        int overlay_fd;           /* of the top; -EBADF: none */
        bool has_frozen;
        int frozen_fd;            /* of the present top, read-only; only where that is frozen */
} OverlayFds;

#define OVERLAY_FDS_NONE ((OverlayFds) { .overlay_fd = -EBADF })
void overlay_fds_done(OverlayFds *fds);
#define _cleanup_overlay_fds_ _cleanup_(overlay_fds_done)

typedef struct OverlayFile {
        int fd;                   /* -EBADF: none, all zeros */
        uint32_t unit;            /* a power of two */
        uint64_t bytes;           /* what is behind them is zeros */
        dev_t dev;
        ino_t ino;
} OverlayFile;

typedef struct Overlay {
        OverlayFile files[OVERLAY_FILES_MAX]; /* base, layers, top */
        unsigned top;             /* its index; 0: read-only, there is just the base */
        unsigned flush_from;      /* the lowest file with what no flush has seen */
        uint64_t disk_bytes;
        uint64_t n_blocks;
        uint8_t *owners;          /* index of the file, two blocks a byte; NULL: all the base's */
        uint8_t *bounce;          /* one unit */
} Overlay;

/* A change that is checked, and can't fail any more. All zeros: none. */
typedef struct OverlayChange {
        bool pushes;
        OverlayFile next;         /* is put on top */
        bool freezes;
        int frozen_fd;            /* takes the place of the present top's */
        bool swaps;
        Overlay other;            /* over the same base; takes the place of all */
} OverlayChange;

/* Takes base_fd in any case. Without a top it is read-only. The top is best made disk_bytes long and sparse by
 * whoever creates it. -EOPNOTSUPP when a file system can't tell a hole from data. */
int overlay_init(Overlay *o, int base_fd, uint64_t base_bytes, uint64_t disk_bytes, OverlayFds *fds, ErrorText *e);
void overlay_done(Overlay *o);

/* Freezes the top: fds' top, which is empty, comes over it, and its own descriptor is given up for the frozen one, with
 * which nobody can write to it. Layers that are given instead replace the present ones, hold what those hold, and end with
 * the present top's file. -E2BIG: that would be one layer too many. */
int overlay_prepare_next(const Overlay *o, OverlayFds *fds, OverlayChange *ret, ErrorText *e);
/* Other files take the place of all but the base. */
int overlay_prepare_other(const Overlay *o, OverlayFds *fds, OverlayChange *ret, ErrorText *e);
/* What is out of use afterwards is left in c. */
void overlay_change(Overlay *o, OverlayChange *c);
void overlay_change_done(OverlayChange *c);
#define _cleanup_overlay_change_ _cleanup_(overlay_change_done)

/* All of it or an error; [offset, offset + bytes of iov) must lie inside the disk, else -EINVAL. */
int overlay_read(Overlay *o, const struct iovec *iov, size_t n_iov, uint64_t offset);
int overlay_write(Overlay *o, const struct iovec *iov, size_t n_iov, uint64_t offset);
int overlay_flush(Overlay *o);

/* The top's descriptor, borrowed; -EBADF: read-only. */
int overlay_top_fd(const Overlay *o);
/* What is the top's. */
uint64_t overlay_present_bytes(const Overlay *o);
