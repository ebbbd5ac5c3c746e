/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/bpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <netlink/cache.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "net/datapath.h"
#include "net/host-link.h"
#include "net/nft.h"
#include "net/nl-util.h"
#include "net/remove.h"

DEFINE_CLEANUP(DIR *, closedir);

/* Those of free slots and of paused sandboxes go with cubed and cube-netd, but not in the same moment. */
#define WAITS 100U
#define WAIT_USEC 50000U

typedef struct Left {
        unsigned links;        /* of slots */
        bool claimed;          /* one of them is a sandbox's */
} Left;

typedef struct Removal {
        int result;
        char *error;           /* the caller's, of POLICY_ERROR_MAX bytes */
} Removal;

static bool is_claimed(int entries, unsigned slot) {
        uint32_t key = slot;
        NetEntry entry;

        /* That of a paused sandbox hangs on cubed. */
        return bpf_map_lookup_elem(entries, &key, &entry) == 0 && entry.owner != UINT32_MAX && !(entry.flags & NET_ENTRY_PARKED);
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

/* What comes after a failure is taken away nevertheless; the first one is told. */
static void _printf_(3, 4) note_failure(Removal *m, int r, const char *format, ...) {
        va_list ap;

        if (r >= 0 || m->result < 0)
                return;
        m->result = r;
        va_start(ap, format);
        (void) vsnprintf(m->error, POLICY_ERROR_MAX, format, ap);
        va_end(ap);
}

static void restore_sysctl(Removal *m, const char *family, const char *link) {
        int r = host_sysctl(family, link, "forwarding", "0");

        /* A link may have gone since. */
        if (r != -ENOENT)
                note_failure(m, r, "Can't turn net.%s.conf.%s.forwarding off again: %s", family, link, strerror(-r));
}

static void restore_sysctls(Removal *m, int config) {
        uint32_t zero = 0;
        NetConfig c;

        if (bpf_map_lookup_elem(config, &zero, &c) < 0) {
                note_failure(m, -errno, "Can't read from the map \"config\" whether forwarding was off before: %s", strerror(errno));
                return;
        }
        c.guarded[sizeof(c.guarded) - 1] = 0;
        if (*c.guarded)
                restore_sysctl(m, "ipv4", c.guarded);
        if (c.forwards6)
                restore_sysctl(m, "ipv6", "all");
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

/* -ENOENT is none that is told: there was no network. */
static int open_map(Removal *m, const char *pin_dir, const char *name) {
        int fd = datapath_open_pinned(pin_dir, name);

        if (fd < 0 && fd != -ENOENT)
                note_failure(m, fd, "Can't open the map \"%s\" in %s: %s", name, pin_dir, strerror(-fd));
        return fd;
}

int network_remove(const char *pin_dir, char error[static POLICY_ERROR_MAX]) {
        Removal m = { .error = error };
        _cleanup_close_ int entries = open_map(&m, pin_dir, "sandboxes"), config = open_map(&m, pin_dir, "config");

        /* Who can't be asked for may run. */
        if (m.result < 0)
                return m.result;
        int r = wait_for_links(entries);
        note_failure(&m, r, "Can't list this host's links: %s", strerror(-r));
        if (r != 0)
                return r;
        if (config >= 0)
                restore_sysctls(&m, config);
        r = nft_table_drop();
        note_failure(&m, r, "Can't remove the nftables table \"cubed\": %s", strerror(-r));
        r = host_link_remove();
        note_failure(&m, r, "Can't remove the link " HOST_LINK ": %s", strerror(-r));
        r = remove_pins(pin_dir);
        note_failure(&m, r, "Can't remove the maps in %s: %s", pin_dir, strerror(-r));
        return m.result;
}
