/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cube-netd's side of cube-resolver: gives it the maps, the sockets and the names of policies, and hears from it which
 * names were denied.
 *
 * One in cube-netd, from SETUP on. Listens at a socket of its own that only root and the resolver's user may
 * connect to; the one that connected last counts, and is told everything from the beginning. What it does not take in time
 * waits in a bounded queue, so that it can hold nobody up. */

#include <systemd/sd-event.h>

#include "net/network.h"

typedef struct NetdResolver NetdResolver;

/* name "": of names that there were too many of. Borrowed. */
typedef struct NameDenied {
        uint32_t slot, count;
        const char *reason, *name, *address;
} NameDenied;

typedef void (*NameDeniedHandler)(const NameDenied *denied, void *userdata);

int netd_resolver_new(sd_event *event, const char *path, Network *network, NameDeniedHandler f, void *userdata,
                      NetdResolver **ret);
NetdResolver *netd_resolver_free(NetdResolver *r);
DEFINE_CLEANUP(NetdResolver *, netd_resolver_free);
bool netd_resolver_is_connected(const NetdResolver *r);
