/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The border to libnl: its error codes become errno here, its objects get cleanup attributes. */

#include <netlink/netlink.h>
#include <netlink/route/link.h>

#include "base/macros.h"

DEFINE_CLEANUP(struct nl_sock *, nl_socket_free);
DEFINE_CLEANUP(struct rtnl_link *, rtnl_link_put);

/* -NLE_* -> -errno; 0 and positive stay. */
int nl_to_errno(int nle);
