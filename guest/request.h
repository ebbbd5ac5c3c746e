/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One request of the host, decoded: what its frame's TLV records say, checked against what that
 * frame type may and must carry. Owned by whoever parsed it; handlers take strings out of it with
 * TAKE_PTR. Nothing in it points into the frame. */

#include "base/agent-proto.h"
#include "base/frame.h"
#include "guest/net.h"

#define AGENT_ENTROPY_MAX 256U

typedef struct StringList {
        char **items;   /* NULL-terminated */
        size_t n;
} StringList;

typedef struct Request {
        uint64_t present;       /* bit n: tag n was there */
        char *hostname, *cwd, *user, *path, *target, *link, *token;
        StringList argv, env, nameservers;
        NetConfig network;
        uint64_t realtime_nsec, timeout_usec, size, disk_bytes;
        uint32_t cpus, pty, rows, cols, pid, signal, group, follow, recursive, mode, parents, stream, port,
                freeze_disk, user_optional, keep_env;
        uint8_t entropy[AGENT_ENTROPY_MAX];
        size_t entropy_size;
        bool no_input;          /* standard input is /dev/null; never part of a frame */
} Request;

/* Takes s, unless it fails. */
int strings_add(StringList *l, char *s);
void strings_done(StringList *l);

#define REQUEST_MESSAGE_MAX 160

/* -EOPNOTSUPP for an unknown type, -EBADMSG for malformed records, -EINVAL for what does not belong
 * into this request or is missing; ret_message says which. ret must be zeroed or parsed before. */
int request_parse(
        Request *ret, const FrameHeader *h, const uint8_t *body, char ret_message[static REQUEST_MESSAGE_MAX]);
void request_done(Request *r);
#define _cleanup_request_ _cleanup_(request_done)

static inline bool request_has(const Request *r, AgentTag tag) {
        return r->present & (UINT64_C(1) << tag);
}
