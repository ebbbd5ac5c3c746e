/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The border to libnl: its error codes become errno here, its objects get cleanup attributes. */

#include <netlink/netlink.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/route.h>

#include "base/macros.h"

DEFINE_CLEANUP(struct nl_sock *, nl_socket_free);
DEFINE_CLEANUP(struct nl_addr *, nl_addr_put);
DEFINE_CLEANUP(struct nl_cache *, nl_cache_free);
DEFINE_CLEANUP(struct rtnl_link *, rtnl_link_put);
DEFINE_CLEANUP(struct rtnl_addr *, rtnl_addr_put);
DEFINE_CLEANUP(struct rtnl_route *, rtnl_route_put);

/* -NLE_* -> -errno; 0 and positive stay. */
int nl_to_errno(int nle);

/* To the routing tables of the present network namespace. */
int nl_open_route(struct nl_sock **ret);
