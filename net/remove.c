/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <netlink/cache.h>

#include "base/fd-util.h"
#include "net/datapath.h"
#include "net/host-link.h"
#include "net/nft.h"
#include "net/nl-util.h"
#include "net/remove.h"

DEFINE_CLEANUP(DIR *, closedir);

/* Those of free slots go with cubed and cube-netd, but not in the same moment. */
#define WAITS 100U
#define WAIT_USEC 50000U

typedef struct Left {
        unsigned links;        /* of slots */
        bool claimed;          /* one of them is a sandbox's */
} Left;

static bool is_claimed(int entries, unsigned slot) {
        uint32_t key = slot;
        NetEntry entry;

        return bpf_map_lookup_elem(entries, &key, &entry) == 0 && entry.owner != UINT32_MAX;
}

static int find_left(int entries, Left *ret) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        _cleanup_(nl_cache_freep) struct nl_cache *cache = NULL;

        *ret = (Left) {};
        int r = nl_open_route(&sk);
        if (r >= 0)
                r = nl_to_errno(rtnl_link_alloc_cache(sk, AF_UNSPEC, &cache));
        if (r < 0)
                return r;
        for (struct nl_object *o = nl_cache_get_first(cache); o; o = nl_cache_get_next(o)) {
                unsigned ifindex = (unsigned) rtnl_link_get_ifindex((struct rtnl_link *) o);
                if (ifindex < NET_IFINDEX_BASE || ifindex >= NET_IFINDEX_END)
                        continue;
                ret->links++;
                ret->claimed |= is_claimed(entries, NET_IFINDEX_SLOT(ifindex));
        }
        return 0;
}

static int wait_for_links(int entries) {
        Left left;

        for (unsigned i = 0;; i++) {
                int r = find_left(entries, &left);
                if (r < 0)
                        return r;
                if (left.links == 0)
                        return 0;
                if (left.claimed || i == WAITS)
                        return 1;
                (void) usleep(WAIT_USEC);
        }
}

static void restore_sysctls(int config) {
        uint32_t zero = 0;
        NetConfig c;

        if (bpf_map_lookup_elem(config, &zero, &c) < 0)
                return;
        c.guarded[sizeof(c.guarded) - 1] = 0;
        if (*c.guarded)
                (void) host_sysctl("ipv4", c.guarded, "forwarding", "0");
        if (c.forwards6)
                (void) host_sysctl("ipv6", "all", "forwarding", "0");
}

static int remove_files(int dir_fd, const char *name) {
        int fd = openat(dir_fd, name, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        _cleanup_(closedirp) DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        int r = 0;

        if (!dir) {
                r = -errno;
                safe_close(fd);
                return r;
        }
        for (struct dirent *de = readdir(dir); de; de = readdir(dir))
                if (de->d_name[0] != '.' && unlinkat(fd, de->d_name, 0) < 0)
                        r = -errno;
        return r < 0 ? r : unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* Also those of releases before. The directory itself may be a mount point. */
static int remove_pins(const char *pin_dir) {
        _cleanup_(closedirp) DIR *dir = opendir(pin_dir);
        int r = 0;

        if (!dir)
                return errno == ENOENT ? 0 : -errno;
        for (struct dirent *de = readdir(dir); de; de = readdir(dir)) {
                if (de->d_name[0] == '.')
                        continue;
                int k = remove_files(dirfd(dir), de->d_name);
                if (k < 0 && k != -ENOTDIR)
                        r = k;
        }
        if (r >= 0)
                (void) rmdir(pin_dir);
        return r;
}

int network_remove(const char *pin_dir) {
        _cleanup_close_ int entries = datapath_open_pinned(pin_dir, "sandboxes"),
                            config = datapath_open_pinned(pin_dir, "config");

        int r = wait_for_links(entries);
        if (r != 0)
                return r;
        restore_sysctls(config);
        r = nft_table_drop();
        int k = host_link_remove();
        if (r >= 0)
                r = k;
        k = remove_pins(pin_dir);
        return r < 0 ? r : k;
}
