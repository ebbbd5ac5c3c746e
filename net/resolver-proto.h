/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What cube-netd tells cube-resolver, and the other way round, on the SOCK_SEQPACKET socket RESOLVER_SOCKET that
 * cube-netd listens at.
 *
 * Packets as in base/packet-client.h, without answers. START comes first on each connection, then all policies, then
 * STARTED; afterwards policies as they come and go. A policy is told before anybody's entry can name it. */

#include <stdint.h>

#include "net/bpf/net-maps.h"

#define RESOLVER_SOCKET "/run/cubed/resolver"
#define RESOLVER_USER "cube-resolver"

#define RESOLVER_PROTO_MAGIC 0x564c5352U /* "RSLV" */
#define RESOLVER_PROTO_VERSION 1U

typedef enum ResolverOp {
        RESOLVER_OP_START = 1, /* NET4 [NET6] AUDIT_SEC; fds: map of names, map of entries (to read), then the sockets
                                * to listen on: UDP and TCP for IPv4, the same for IPv6 */
        RESOLVER_OP_POLICY,    /* POLICY ALL LAST NAME..; in several packets if there are many */
        RESOLVER_OP_KEEP,      /* POLICY: somebody has it, and this cube-netd does not know its names */
        RESOLVER_OP_DROP,      /* POLICY */
        RESOLVER_OP_STARTED,   /* policies that were not told of since START are no more */
        RESOLVER_OP_DENIED = 100, /* from cube-resolver: SLOT REASON NAME ADDRESS COUNT */
} ResolverOp;

typedef enum ResolverTag {
        RESOLVER_TAG_NET4 = 1, /* str: CIDR; the host has the first address */
        RESOLVER_TAG_NET6,     /* str */
        RESOLVER_TAG_AUDIT_SEC, /* u32 */
        RESOLVER_TAG_POLICY,   /* u32 */
        RESOLVER_TAG_ALL,      /* u32: 1 any name may be asked for */
        RESOLVER_TAG_LAST,     /* u32: 1 the policy is complete with this packet */
        RESOLVER_TAG_NAME,     /* ResolverName, and the name behind it */
        RESOLVER_TAG_SLOT,     /* u32 */
        RESOLVER_TAG_REASON,   /* str: name, or answer: ADDRESS is what it led to and may not open */
        RESOLVER_TAG_DENIED_NAME, /* str: "" for those there were too many of */
        RESOLVER_TAG_ADDRESS,  /* str */
        RESOLVER_TAG_COUNT,    /* u32 */
} ResolverTag;

/* A PolicyName without its name. */
typedef struct ResolverName {
        NetRule rule;
        uint8_t below, has_inside, special, reserved;
        uint8_t inside_tag, inside_len;
        uint8_t inside_addr[16];
        uint8_t padding[2];
} ResolverName;
