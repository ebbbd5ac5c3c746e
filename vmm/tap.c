/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>

#include "base/macros.h"
#include "vmm/tap.h"

int tap_prepare(int fd, ErrorText *e) {
        struct ifreq ifr = {};
        int header = TAP_HEADER_BYTES;

        assert(fd >= 0);

        if (ioctl(fd, TUNGETIFF, &ifr) < 0)
                return error_set_errno(e, -errno, "tap: what it is");
        if ((ifr.ifr_flags & (IFF_TAP|IFF_TUN)) != IFF_TAP || !(ifr.ifr_flags & IFF_NO_PI) ||
            !(ifr.ifr_flags & IFF_VNET_HDR))
                return error_set(e, -EINVAL, "tap: made with flags 0x%hx, but IFF_TAP, IFF_NO_PI and IFF_VNET_HDR are "
                                 "needed", ifr.ifr_flags);

        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags|O_NONBLOCK) < 0)
                return error_set_errno(e, -errno, "tap: not to wait");
        if (ioctl(fd, TUNSETVNETHDRSZ, &header) < 0)
                return error_set_errno(e, -errno, "tap: size of the header");
        /* Until a driver says what it can take. */
        int r = tap_set_offload(fd, 0);
        return r < 0 ? error_set_errno(e, r, "tap: offloads") : 0;
}

int tap_set_offload(int fd, unsigned offload) {
        return ioctl(fd, TUNSETOFFLOAD, (unsigned long) offload) < 0 ? -errno : 0;
}
