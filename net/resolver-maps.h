/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The two maps of the filter that cube-resolver was given: what names opened, which it writes, and the entries of
 * sandboxes, which it may read. By system call, without libbpf, which would bring more than these four. */

#include <stdint.h>

#include "net/bpf/net-maps.h"

typedef struct ResolverMaps {
        int names, entries;    /* -EBADF before cube-netd was there */
} ResolverMaps;

#define RESOLVER_MAPS_INIT ((ResolverMaps) { .names = -EBADF, .entries = -EBADF })

int resolver_maps_entry(const ResolverMaps *m, uint32_t slot, NetEntry *ret);
int resolver_maps_get(const ResolverMaps *m, const NetNameKey *key, NetName *ret);
int resolver_maps_put(const ResolverMaps *m, const NetNameKey *key, const NetName *name);
int resolver_maps_remove(const ResolverMaps *m, const NetNameKey *key);
/* The key behind this one; NULL: the first. -ENOENT at the end. */
int resolver_maps_next(const ResolverMaps *m, const NetNameKey *key, NetNameKey *ret);
