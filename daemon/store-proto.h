/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What cubed asks of cube-stored, on a SOCK_SEQPACKET socketpair that cube-stored inherits as fd 3.
 *
 * Packets as in base/packet-client.h, one request after the other. Paths are relative to the
 * directory that the first request, STORE_OP_ROOT, hands over, and never lead out of it nor
 * through a symbolic link. */

#define STORE_PROTO_MAGIC 0x524f5453U /* "STOR" */
#define STORE_PROTO_VERSION 1U

typedef enum StoreOp {
        STORE_OP_ROOT = 1,     /* one fd: the state directory */
        STORE_OP_SYNC,         /* one fd: fsync */
        STORE_OP_RENAME,       /* PATH, TARGET: rename, then fsync of both directories */
        STORE_OP_REMOVE,       /* PATH: a file or a whole tree; a missing one is no error */
} StoreOp;

typedef enum StoreTag {
        STORE_TAG_MESSAGE = 1, /* str */
        STORE_TAG_PATH,        /* str */
        STORE_TAG_TARGET,      /* str */
} StoreTag;
