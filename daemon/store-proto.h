/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What cubed asks of cube-stored, on a SOCK_SEQPACKET socketpair that cube-stored inherits as fd 3.
 *
 * Packets as in base/packet-client.h. Several requests are worked on at a time and answered as they get
 * done: whoever needs an order waits for the answer. Paths are relative to the directory that the first
 * request, STORE_OP_ROOT, hands over, and never lead out of it nor through a symbolic link. */

#define STORE_PROTO_MAGIC 0x524f5453U /* "STOR" */
#define STORE_PROTO_VERSION 3U
/* Holds SNAPSHOT_LAYER_RUNS_MAX runs. */
#define STORE_PACKET_MAX (128U * 1024U)
/* Requests without an answer yet; more are answered -EBUSY. */
#define STORE_PENDING_MAX 1024U

typedef enum StoreOp {
        STORE_OP_ROOT = 1,     /* one fd: the state directory; once */
        STORE_OP_SYNC,         /* one fd: fsync */
        STORE_OP_RENAME,       /* PATH, TARGET: rename, then fsync of both directories */
        STORE_OP_REMOVE,       /* PATH: a file or a whole tree; a missing one is no error */
        STORE_OP_SAVE_MEMORY,  /* RUNS, MEM_BYTES, ID, PARENT, fds: an empty file, becomes a memory file
                                  of base/snapshot-format.h; a pidfd -> DATA_BYTES, ZERO_BYTES */
        STORE_OP_MERGE_MEMORY, /* BENEATH, fds: an empty file, then memory files, lowest first. Of these the first
                                  BENEATH only lend pages, where that saves runs */
        STORE_OP_MERGE_DISK,   /* fds: an empty file, then overlays, lowest first */
        _STORE_OP_MAX,
} StoreOp;

typedef enum StoreTag {
        STORE_TAG_MESSAGE = 1, /* str */
        STORE_TAG_PATH,        /* str */
        STORE_TAG_TARGET,      /* str */
        STORE_TAG_RUNS,        /* VmmRun... (base/vmm-proto.h), by address, not overlapping */
        STORE_TAG_MEM_BYTES,   /* u64: of the guest, with what can be plugged */
        STORE_TAG_ID,          /* 16 bytes: of the snapshot */
        STORE_TAG_PARENT,      /* 16 bytes: what it stands on; all zeros: nothing */
        STORE_TAG_BENEATH,     /* u32 */
        STORE_TAG_DATA_BYTES,  /* u64 */
        STORE_TAG_ZERO_BYTES,  /* u64: of pages that take no place */
} StoreTag;
