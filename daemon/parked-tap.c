/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd-util.h"
#include "base/macros.h"
#include "daemon/parked-tap.h"

/* Twice its queue; what is more came in meanwhile, and may stay. */
#define DRAIN_MAX 2000U
#define TUN_MINOR 200U

#define TAKE_ALL 0x40000U
#define LOAD(size, at) BPF_STMT(BPF_LD | (size) | BPF_ABS, (at))
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))

static const struct sock_filter filter[] = {
        LOAD(BPF_H, 12),
        EQUAL(ETH_P_IP, 0, 3),
        LOAD(BPF_B, ETH_HLEN + 9),
        EQUAL(IPPROTO_TCP, 5, 0),
        EQUAL(IPPROTO_UDP, 4, 5),
        EQUAL(ETH_P_IPV6, 0, 4),
        LOAD(BPF_B, ETH_HLEN + 6),
        EQUAL(IPPROTO_TCP, 1, 0),
        EQUAL(IPPROTO_UDP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, TAKE_ALL),
        BPF_STMT(BPF_RET | BPF_K, 0),
};

static bool is_tap(int fd) {
        struct ifreq q = {};
        struct stat st;

        return fstat(fd, &st) >= 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(10, TUN_MINOR) &&
                ioctl(fd, TUNGETIFF, &q) >= 0 && q.ifr_flags & IFF_TAP;
}

int parked_tap_check(int fd, pid_t vmm, int *ret_netns_fd) {
        struct stat own, theirs;
        char path[64];

        if (!is_tap(fd))
                return -EBADF;
        _cleanup_close_ int netns = ioctl(fd, TUNGETDEVNETNS);
        if (netns < 0)
                return -errno;
        (void) snprintf(path, sizeof(path), "/proc/%d/ns/net", (int) vmm);
        if (stat(path, &theirs) < 0 || fstat(netns, &own) < 0)
                return -errno;
        if (own.st_ino != theirs.st_ino || own.st_dev != theirs.st_dev)
                return -EBADF;
        *ret_netns_fd = TAKE_FD(netns);
        return 0;
}

int parked_tap_begin(int fd) {
        struct sock_fprog program = { .len = ELEMENTSOF(filter), .filter = (struct sock_filter *) filter };
        char frame[64];

        if (ioctl(fd, TUNATTACHFILTER, &program) < 0)
                return -errno;
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
                return -errno;
        /* A frame that is longer than the buffer is gone all the same. */
        for (unsigned i = 0; i < DRAIN_MAX; i++)
                if (read(fd, frame, sizeof(frame)) < 0)
                        return errno == EAGAIN ? 0 : -errno;
        return 0;
}

int parked_tap_end(int fd) {
        return ioctl(fd, TUNDETACHFILTER, NULL) < 0 ? -errno : 0;
}
