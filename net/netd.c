/* SPDX-License-Identifier: Apache-2.0 */

/* cube-netd: makes network namespaces, links and filters for cubed, which asks on fd 3.
 *
 * One thread that works on one request after the other and may wait for the kernel as long as
 * that takes; the reason why it is a process of its own. Ends when cubed closes the socket. */

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/fd-util.h"
#include "base/packet-client.h"
#include "net/net-proto.h"
#include "net/netns.h"

#define NETD_PACKET_MAX 65536U

static int reply(int fd, const PacketHeader *request, int error, const char *message, int ret_fd) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);

        if (error < 0 && message)
                tlv_put_str(&w, NET_TAG_MESSAGE, message);

        PacketHeader h = {
                .magic = NET_PROTO_MAGIC,
                .version = NET_PROTO_VERSION,
                .op = request->op,
                .flags = PACKET_FLAG_REPLY,
                .seq = request->seq,
                .error = error,
                .len = (uint32_t) w.size,
        };
        struct iovec iov[2] = { { &h, sizeof(h) }, { w.data, w.size } };
        return send_packet(fd, iov, w.size > 0 ? 2 : 1, &ret_fd, ret_fd >= 0 ? 1 : 0);
}

static int reply_netns(int fd, const PacketHeader *request) {
        _cleanup_close_ int netns = -EBADF;
        char message[200] = "";

        int r = netns_new(&netns);
        if (r < 0)
                (void) snprintf(message, sizeof(message), "Can't make a network namespace: %s", strerror(-r));
        return reply(fd, request, r, message, netns);
}

static int handle(int fd, const uint8_t *packet, size_t size) {
        PacketHeader h;

        if (size < sizeof(h))
                return -EBADMSG;
        memcpy(&h, packet, sizeof(h));
        if (h.magic != NET_PROTO_MAGIC || h.version != NET_PROTO_VERSION || h.len != size - sizeof(h))
                return -EBADMSG;

        switch (h.op) {
        case NET_OP_PING:
                return reply(fd, &h, 0, NULL, -EBADF);
        case NET_OP_NETNS_NEW:
                return reply_netns(fd, &h);
        default:
                return reply(fd, &h, -EOPNOTSUPP, "cube-netd does not know this request", -EBADF);
        }
}

static int run(int fd) {
        static uint8_t packet[NETD_PACKET_MAX];

        for (;;) {
                int fds[PACKET_FDS_LIMIT];
                size_t n_fds;

                ssize_t n = recv_packet(fd, packet, sizeof(packet), fds, ELEMENTSOF(fds), &n_fds);
                if (n <= 0)
                        return (int) n;
                int r = handle(fd, packet, (size_t) n);
                close_many(fds, n_fds);
                if (r < 0)
                        return r == -EPIPE || r == -ECONNRESET ? 0 : r;
        }
}

int main(int argc, char *argv[]) {
        struct stat st;

        if (argc == 2 && streq(argv[1], "--version")) {
                puts("cube-netd " CUBED_VERSION);
                return EXIT_SUCCESS;
        }
        if (argc != 1 || fstat(NET_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
                fputs("cube-netd is started by cubed, with a socket as fd 3.\n", stderr);
                return EXIT_FAILURE;
        }

        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) fd_set_cloexec(NET_FD, true);
        int r = run(NET_FD);
        if (r < 0) {
                fprintf(stderr, "cube-netd: %s\n", strerror(-r));
                return EXIT_FAILURE;
        }
        return EXIT_SUCCESS;
}
