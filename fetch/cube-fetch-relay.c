/* SPDX-License-Identifier: Apache-2.0 */

/* cube-fetch-relay: the only way out of cube-fetch's network, as a SOCKS 5 server. systemd starts one for each connection, which
 * is made by cube-gateway and handed on to cube-fetch: the first says what may be reached besides the internet, the second
 * where to listen. It ends with that connection, and a child serves each of skopeo's. */

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>

#include "base/fd-util.h"
#include "fetch/fetch-proto.h"
#include "fetch/reach.h"
#include "fetch/socks.h"

#define CHILDREN_MAX 64U
#define PUMP_SIZE 65536U
/* For the other end to say where it wants to go. */
#define HELLO_SEC 30
/* A connection on which nothing moves for so long has been forgotten. */
#define IDLE_MSEC (10 * 60 * 1000)
#define REQUEST_MSEC 30000

static SocksReply reply_of(int r) {
        return r >= 0               ? SOCKS_CONNECTED
               : r == -EACCES       ? SOCKS_NOT_ALLOWED
               : r == -ECONNREFUSED ? SOCKS_REFUSED
               : r == -EHOSTUNREACH || r == -ENETUNREACH || r == -ETIMEDOUT ? SOCKS_UNREACHABLE
                                                                            : SOCKS_FAILED;
}

/* What one end says to the other; 0 at its end, which the other is told. */
static int pump_one(int from_fd, int to_fd) {
        char buffer[PUMP_SIZE];
        ssize_t n = read(from_fd, buffer, sizeof(buffer));

        if (n < 0)
                return errno == EINTR ? 1 : -errno;
        if (n == 0)
                return shutdown(to_fd, SHUT_WR) < 0 ? -errno : 0;
        int r = write_full(to_fd, buffer, (size_t) n);
        return r < 0 ? r : 1;
}

static void pump(int a, int b) {
        struct pollfd p[] = { { .fd = a, .events = POLLIN }, { .fd = b, .events = POLLIN } };
        const int to[] = { b, a };

        while (p[0].fd >= 0 || p[1].fd >= 0) {
                if (poll(p, ELEMENTSOF(p), IDLE_MSEC) <= 0)
                        return;
                for (size_t i = 0; i < ELEMENTSOF(p); i++) {
                        int r = p[i].fd >= 0 && p[i].revents ? pump_one(p[i].fd, to[i]) : 1;
                        if (r < 0)
                                return;
                        if (r == 0)
                                p[i].fd = -EBADF;
                }
        }
}

static void serve(const Reach *reach, int fd) {
        const struct timeval hello = { .tv_sec = HELLO_SEC }, always = {};
        _cleanup_close_ int out_fd = -EBADF;
        SocksTarget target;

        (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &hello, sizeof(hello));
        if (socks_accept(fd, &target) < 0)
                return;
        int r = reach_connect(reach, target.host, target.port, &out_fd);
        if (r == -EACCES)
                fprintf(stderr, "%s, port %u, was not connected to: it is not in the internet, nor in ImageNetworks= of gateway.conf\n",
                        target.host, target.port);
        (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &always, sizeof(always));
        if (socks_answer(fd, reply_of(r)) >= 0 && r >= 0)
                pump(fd, out_fd);
}

/* Whether there is one more. */
static bool start_child(const Reach *reach, int link_fd, int listen_fd, int fd) {
        pid_t self = getpid(), pid = fork();

        if (pid != 0) {
                if (pid < 0)
                        fprintf(stderr, "A connection could not be served: %s\n", strerror(errno));
                return pid > 0;
        }
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == self) {
                safe_close(link_fd);
                safe_close(listen_fd);
                serve(reach, fd);
        }
        _exit(0);
}

static size_t reap(size_t n_children) {
        while (n_children > 0 && waitpid(-1, NULL, WNOHANG) > 0)
                n_children--;
        return n_children;
}

/* Until whoever holds the connection has gone. */
static void run(const Reach *reach, int link_fd, int listen_fd) {
        struct pollfd p[] = { { .fd = link_fd, .events = POLLIN }, { .fd = listen_fd, .events = POLLIN } };
        size_t n_children = 0;

        for (;;) {
                /* One too many waits until another has ended. */
                p[1].fd = n_children < CHILDREN_MAX ? listen_fd : -EBADF;
                int n = poll(p, ELEMENTSOF(p), n_children > 0 ? 1000 : -1);
                n_children = reap(n_children);
                if ((n < 0 && errno != EINTR) || (n > 0 && p[0].revents))
                        return;
                if (n <= 0 || !p[1].revents)
                        continue;
                _cleanup_close_ int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
                if (fd < 0)
                        return;
                n_children += start_child(reach, link_fd, listen_fd, fd);
        }
}

/* One packet of that kind: its text, NUL-terminated, and its descriptor. */
static int receive(int link_fd, char kind, char text[static FETCH_PACKET_MAX + 1], int *ret_fd) {
        struct pollfd p = { .fd = link_fd, .events = POLLIN };
        size_t n_fds = 0;
        int fd = -EBADF;

        if (poll(&p, 1, REQUEST_MSEC) <= 0)
                return -ETIMEDOUT;
        ssize_t n = recv_packet(link_fd, text, FETCH_PACKET_MAX, &fd, 1, &n_fds);
        if (n <= 0)
                return n < 0 ? (int) n : -ECONNRESET;
        text[n] = 0;
        if (*text != kind || (n_fds > 0) != (ret_fd != NULL)) {
                close_many(&fd, n_fds);
                return -EBADMSG;
        }
        if (ret_fd)
                *ret_fd = fd;
        return 0;
}

static int start(int link_fd, Reach *ret_reach, int *ret_listen_fd) {
        _cleanup_free_ char *text = malloc(FETCH_PACKET_MAX + 1);
        _cleanup_close_ int fd = -EBADF;

        if (!text)
                return -ENOMEM;
        int r = receive(link_fd, FETCH_NETWORKS, text, NULL);
        if (r >= 0)
                r = reach_parse(text + 1, ret_reach);
        if (r >= 0)
                r = receive(link_fd, FETCH_LISTENER, text, &fd);
        if (r < 0)
                return r;
        if (sd_is_socket(fd, AF_INET, SOCK_STREAM, 1) <= 0)
                return -EBADMSG;
        *ret_listen_fd = TAKE_FD(fd);
        return 0;
}

int main(int argc, char *argv[]) {
        _cleanup_close_ int listen_fd = -EBADF;
        Reach reach;

        if (sd_listen_fds(true) != 1 || sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_SEQPACKET, 0, NULL, 0) <= 0) {
                fprintf(stderr, "One connection is to be passed in: start cube-fetch-relay.socket; see cube-fetch(8)\n");
                return EXIT_FAILURE;
        }
        (void) signal(SIGPIPE, SIG_IGN);
        int r = start(SD_LISTEN_FDS_START, &reach, &listen_fd);
        if (r < 0) {
                /* Who went before he said it wanted nothing. */
                if (r != -ECONNRESET)
                        fprintf(stderr, "What was asked for could not be read: %s\n", strerror(-r));
                return r == -ECONNRESET ? EXIT_SUCCESS : EXIT_FAILURE;
        }
        run(&reach, SD_LISTEN_FDS_START, listen_fd);
        return EXIT_SUCCESS;
}
