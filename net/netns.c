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
        _cleanup_(rtnl_link_putp) struct rtnl_link *lo = NULL, *change = rtnl_link_alloc();

        if (!change)
                return -ENOMEM;
        int r = nl_open_route(&sk);
        if (r < 0)
                return r;
        r = rtnl_link_get_kernel(sk, 0, "lo", &lo);
        if (r < 0)
                return nl_to_errno(r);
        rtnl_link_set_flags(change, IFF_UP);
        return nl_to_errno(rtnl_link_change(sk, lo, change, 0));
}

int netns_own(int *ret_fd) {
        int fd = open("/proc/thread-self/ns/net", O_RDONLY|O_CLOEXEC);

        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

int netns_call(int netns, int (*f)(void *userdata), void *userdata) {
        _cleanup_close_ int own = -EBADF;
        int r = netns_own(&own);

        if (r < 0)
                return r;
        if (setns(netns, CLONE_NEWNET) < 0)
                return -errno;
        r = f(userdata);
        if (setns(own, CLONE_NEWNET) < 0)
                abort();
        return r;
}

int netns_new(int *ret_fd) {
        _cleanup_close_ int own = -EBADF, fd = -EBADF;
        int r = netns_own(&own);

        if (r < 0)
                return r;
        if (unshare(CLONE_NEWNET) < 0)
                return -errno;
        r = netns_own(&fd);
        if (r >= 0)
                r = loopback_up();
        if (setns(own, CLONE_NEWNET) < 0)
                abort();
        if (r < 0)
                return r;
        *ret_fd = TAKE_FD(fd);
        return 0;
}
