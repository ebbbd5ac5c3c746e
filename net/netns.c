/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <net/if.h>
#include <netlink/netlink.h>
#include <netlink/route/link.h>
#include <sched.h>

#include "base/macros.h"
#include "net/netns.h"
#include "net/nl-util.h"

static int loopback_up(void) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        _cleanup_(rtnl_link_putp) struct rtnl_link *lo = NULL, *change = NULL;

        sk = nl_socket_alloc();
        change = rtnl_link_alloc();
        if (!sk || !change)
                return -ENOMEM;
        int r = nl_connect(sk, NETLINK_ROUTE);
        if (r < 0)
                return nl_to_errno(r);
        r = rtnl_link_get_kernel(sk, 0, "lo", &lo);
        if (r < 0)
                return nl_to_errno(r);
        rtnl_link_set_flags(change, IFF_UP);
        return nl_to_errno(rtnl_link_change(sk, lo, change, 0));
}

int netns_new(int *ret_fd) {
        _cleanup_close_ int own = open("/proc/thread-self/ns/net", O_RDONLY|O_CLOEXEC), fd = -EBADF;
        int r = 0;

        if (own < 0)
                return -errno;
        if (unshare(CLONE_NEWNET) < 0)
                return -errno;
        fd = open("/proc/thread-self/ns/net", O_RDONLY|O_CLOEXEC);
        if (fd < 0)
                r = -errno;
        else
                r = loopback_up();
        if (setns(own, CLONE_NEWNET) < 0)
                abort();
        if (r < 0)
                return r;
        *ret_fd = TAKE_FD(fd);
        return 0;
}
