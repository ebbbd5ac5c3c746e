/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The host's side of the sandbox network: its own address on a link of ours, and what the sandbox network
 * must not collide with. */

#include "net/policy.h"

#define HOST_LINK "cube-host"
#define HOST_LINK_PEER "cube-host0"

/* A link with the first address of each network; goes on being there when it was. net6 may have tag 0. */
int host_link_make(const Prefix *net4, const Prefix *net6);
int host_link_remove(void);
/* The networks of a link that is there already; tag 0 where there is none. */
int host_link_get(Prefix *ret_net4, Prefix *ret_net6);

/* 1 and a sentence when an address or a route of the host (not of ours) lies in net or around it. */
int host_overlaps(const Prefix *net, char text[static 200]);

/* 1, and the link that the way to the internet leads through; 0 when there is none. */
int host_uplink(uint8_t tag, unsigned *ret_ifindex, unsigned *ret_mtu, char ret_name[static 16]);

/* net.ipv4.conf.NAME.KEY and the like. 0 when it has that value, 1 when it was changed. */
int host_sysctl(const char *family, const char *name, const char *key, const char *value);
/* Neither left out of the kernel nor turned off. */
bool host_has_ipv6(void);
/* Lets this host forward IPv6 and still believe the routers that it believes now. */
int host_enable_ipv6(void);
