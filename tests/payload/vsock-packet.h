/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* virtio 1.2 5.10.6: what goes over the rings of a vsock device. */

#include "lib.h"

#define HOST_CID 2U
#define VSOCK_STREAM 1U

enum { OP_INVALID, OP_REQUEST, OP_RESPONSE, OP_RST, OP_SHUTDOWN, OP_RW, OP_CREDIT_UPDATE, OP_CREDIT_REQUEST };
enum { SHUTDOWN_RCV = 1, SHUTDOWN_SEND = 2 };
enum { QUEUE_RX, QUEUE_TX, QUEUE_EVENT };

typedef struct PACKED Packet {
        uint64_t src_cid, dst_cid;
        uint32_t src_port, dst_port, len;
        uint16_t type, op;
        uint32_t flags, buf_alloc, fwd_cnt;
} Packet;
