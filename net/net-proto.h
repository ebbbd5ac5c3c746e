/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What cubed asks of cube-netd, on a SOCK_SEQPACKET socketpair that cube-netd inherits as fd 3.
 *
 * Packets as in base/packet-client.h. One request at a time is worked on, in order; every request
 * is answered. An error's text is NET_TAG_MESSAGE. Ends with the socket. */

#define NET_PROTO_MAGIC 0x4454454eU /* "NETD" */
#define NET_PROTO_VERSION 1U
#define NET_FD 3

typedef enum NetOp {
        NET_OP_PING = 1,
        NET_OP_NETNS_NEW,      /* -> one fd: a network namespace without a name, loopback up */
} NetOp;

typedef enum NetTag {
        NET_TAG_MESSAGE = 1,   /* str */
} NetTag;
