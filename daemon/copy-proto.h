/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What "cube-image copy-in" and cubed say to each other on a SOCK_SEQPACKET socketpair: one request at a time, each
 * answered by one packet. cubed passes the body on to the agent, which checks it as anything else; it never reads what
 * is copied. */

#include <stdint.h>

#include "base/agent-proto.h"

/* Two paths and numbers. */
#define COPY_BODY_MAX 16384U
#define COPY_TEXT_MAX 1024U

typedef struct CopyRequest {
        uint32_t type;             /* AGENT_MKDIR, AGENT_SYMLINK or AGENT_STREAM_WRITE; its TLV records follow */
        uint32_t reserved;         /* 0; keeps records aligned */
} CopyRequest;

typedef struct CopyAnswer {
        int32_t error;             /* 0 or negative errno; what it means for people follows. With a file's 0: its stream */
} CopyAnswer;
