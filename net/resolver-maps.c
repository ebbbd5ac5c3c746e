/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/resolver-maps.h"

static int call(int command, int fd, const void *key, void *value, uint64_t flags) {
        union bpf_attr attr = {
                .map_fd = (uint32_t) fd,
                .key = (uintptr_t) key,
                .value = (uintptr_t) value,
                .flags = flags,
        };

        if (fd < 0)
                return -ENOTCONN;
        return syscall(SYS_bpf, command, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int resolver_maps_entry(const ResolverMaps *m, uint32_t slot, NetEntry *ret) {
        return call(BPF_MAP_LOOKUP_ELEM, m->entries, &slot, ret, 0);
}

int resolver_maps_get(const ResolverMaps *m, const NetNameKey *key, NetName *ret) {
        return call(BPF_MAP_LOOKUP_ELEM, m->names, key, ret, 0);
}

int resolver_maps_put(const ResolverMaps *m, const NetNameKey *key, const NetName *name) {
        return call(BPF_MAP_UPDATE_ELEM, m->names, key, (void *) name, BPF_ANY);
}

int resolver_maps_remove(const ResolverMaps *m, const NetNameKey *key) {
        return call(BPF_MAP_DELETE_ELEM, m->names, key, NULL, 0);
}

int resolver_maps_next(const ResolverMaps *m, const NetNameKey *key, NetNameKey *ret) {
        return call(BPF_MAP_GET_NEXT_KEY, m->names, key, ret, 0);
}
