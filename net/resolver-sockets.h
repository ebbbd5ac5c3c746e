/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where cube-resolver listens: sockets on the host's own address in each sandbox network, made by cube-netd and handed
 * over.
 *
 * On a port that the kernel chooses, the same for all; the filter translates the 53 that guests use. So no
 * other DNS server of the host is in the way, whatever it has bound, and the resolver needs no privilege for a low port. */

#include "net/policy.h"

#define RESOLVER_SOCKETS_MAX 4U

typedef struct ResolverSockets {
        int fds[RESOLVER_SOCKETS_MAX]; /* UDP and TCP, for IPv4, then IPv6 */
        size_t n;
        uint16_t port;
} ResolverSockets;

/* net6->tag may be 0. The addresses have to be there. */
int resolver_sockets_open(ResolverSockets *s, const Prefix *net4, const Prefix *net6);
void resolver_sockets_done(ResolverSockets *s);
