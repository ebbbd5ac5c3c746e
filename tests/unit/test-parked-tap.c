/* SPDX-License-Identifier: Apache-2.0 */

/* The tap of a paused sandbox, a real one in a namespace of its own: needs root. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd-util.h"
#include "daemon/parked-tap.h"
#include "tests/unit/test.h"

#define FRAME_BYTES 60U

static int wire = -EBADF;

static int make_tap(short flags) {
        struct ifreq q = { .ifr_name = "tap0", .ifr_flags = flags };
        int fd = open("/dev/net/tun", O_RDWR|O_CLOEXEC|O_NONBLOCK);

        if (fd >= 0)
                assert_ok(ioctl(fd, TUNSETIFF, &q));
        return fd;
}

/* What is sent on the wire comes out of the tap. */
static int make(void) {
        struct ifreq q = { .ifr_name = "tap0", .ifr_flags = IFF_UP };

        if (geteuid() != 0)
                test_skip("needs root");
        if (unshare(CLONE_NEWNET) < 0)
                test_skip("namespaces are not allowed here");
        /* It has nothing to say of its own. */
        int sysctl = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY|O_CLOEXEC);
        (void) !write(sysctl, "1", 1);
        safe_close(sysctl);
        int fd = make_tap(IFF_TAP|IFF_NO_PI|IFF_VNET_HDR);
        if (fd < 0)
                test_skip("no tap can be made here");
        wire = socket(AF_PACKET, SOCK_RAW|SOCK_CLOEXEC, 0);
        assert_ok(wire);
        assert_ok(ioctl(wire, SIOCSIFFLAGS, &q));
        struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_ifindex = (int) if_nametoindex("tap0"), .sll_protocol = htons(ETH_P_ALL) };
        assert_ok(bind(wire, (struct sockaddr *) &to, sizeof(to)));
        return fd;
}

static void done(int fd) {
        safe_close(fd);
        wire = safe_close(wire);
}

static void send_frame(uint16_t type, uint8_t protocol) {
        uint8_t frame[FRAME_BYTES] = { 0x02, 0xcb, 0xff, 0, 0, 2, 0x02, 0xcb, 0xff, 0, 0, 1, (uint8_t) (type >> 8), (uint8_t) type };

        frame[14] = type == ETH_P_IP ? 0x45 : 0x60;
        frame[type == ETH_P_IP ? 23 : 20] = protocol;
        assert_eq(send(wire, frame, sizeof(frame), 0), (ssize_t) sizeof(frame));
}

static bool readable(int fd) {
        struct pollfd p = { .fd = fd, .events = POLLIN };

        return poll(&p, 1, 0) == 1 && p.revents & POLLIN;
}

TEST(what_waited_is_thrown_away_and_only_tcp_and_udp_come_in) {
        static const struct {
                uint16_t type;
                uint8_t protocol;
                bool comes_in;
        } frames[] = {
                { ETH_P_ARP, 0, false },           { ETH_P_IP, IPPROTO_ICMP, false }, { ETH_P_IP, IPPROTO_IGMP, false },
                { ETH_P_IPV6, IPPROTO_ICMPV6, false }, { ETH_P_IPV6, IPPROTO_HOPOPTS, false }, { 0x88cc, 0, false },
                { ETH_P_IP, IPPROTO_TCP, true },   { ETH_P_IP, IPPROTO_UDP, true },   { ETH_P_IPV6, IPPROTO_TCP, true },
                { ETH_P_IPV6, IPPROTO_UDP, true },
        };
        int fd = make();
        char frame[256];

        for (unsigned i = 0; i < 5; i++)
                send_frame(ETH_P_IP, IPPROTO_TCP);
        assert_true(readable(fd));
        assert_ok(parked_tap_begin(fd));
        assert_true(!readable(fd));
        for (size_t i = 0; i < ELEMENTSOF(frames); i++) {
                send_frame(frames[i].type, frames[i].protocol);
                if (readable(fd) != frames[i].comes_in)
                        test_stop(TEST_FAILED, __LINE__, "type %#x, protocol %u", frames[i].type, frames[i].protocol);
                if (frames[i].comes_in)
                        assert_true(read(fd, frame, sizeof(frame)) > (ssize_t) FRAME_BYTES);
        }
        done(fd);
}

TEST(a_vmm_gets_what_waits_and_whatever_comes) {
        int fd = make();
        char frame[256];

        assert_ok(parked_tap_begin(fd));
        send_frame(ETH_P_IP, IPPROTO_TCP);
        assert_ok(parked_tap_end(fd));
        assert_true(read(fd, frame, sizeof(frame)) > 0);
        send_frame(ETH_P_ARP, 0);
        assert_true(readable(fd));
        done(fd);
}

TEST(it_may_be_parked_again_and_again) {
        int fd = make();

        for (unsigned i = 0; i < 3; i++) {
                assert_ok(parked_tap_begin(fd));
                assert_ok(parked_tap_begin(fd));
                assert_ok(parked_tap_end(fd));
        }
        done(fd);
}

TEST(what_a_vmm_hands_out_is_looked_at) {
        _cleanup_close_ int null = open("/dev/null", O_RDWR|O_CLOEXEC), pair = -EBADF;
        int pipe_fds[2], netns = -EBADF, status;
        struct stat own, found;
        char byte;

        int fd = make();
        assert_ok(parked_tap_check(fd, getpid(), &netns));
        assert_ok(stat("/proc/self/ns/net", &own));
        assert_ok(fstat(netns, &found));
        assert_true(own.st_ino == found.st_ino);
        safe_close(netns);

        assert_eq(parked_tap_check(null, getpid(), &netns), -EBADF);
        pair = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0);
        assert_eq(parked_tap_check(pair, getpid(), &netns), -EBADF);
        _cleanup_close_ int unbound = open("/dev/net/tun", O_RDWR|O_CLOEXEC);
        assert_eq(parked_tap_check(unbound, getpid(), &netns), -EBADF);

        /* That of another namespace than its own. */
        assert_ok(pipe(pipe_fds));
        pid_t pid = fork();
        if (pid == 0) {
                if (unshare(CLONE_NEWNET) < 0 || write(pipe_fds[1], "x", 1) != 1)
                        _exit(1);
                (void) pause();
                _exit(0);
        }
        assert_eq(read(pipe_fds[0], &byte, 1), 1);
        assert_eq(parked_tap_check(fd, pid, &netns), -EBADF);
        assert_ok(kill(pid, SIGKILL));
        assert_eq(waitpid(pid, &status, 0), pid);
        close_many(pipe_fds, 2);
        done(fd);
}

TEST(a_tunnel_is_no_tap) {
        int netns;

        int fd = make();
        safe_close(fd);
        fd = make_tap(IFF_TUN|IFF_NO_PI);
        assert_eq(parked_tap_check(fd, getpid(), &netns), -EBADF);
        done(fd);
}
