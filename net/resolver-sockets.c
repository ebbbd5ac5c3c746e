/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/fd-util.h"
#include "net/resolver-sockets.h"

#define BACKLOG 128
/* A port that is free for UDP may be taken for TCP. */
#define TRIES 20U

typedef union Address {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
} Address;

static socklen_t own_address(const Prefix *net, uint16_t port, Address *ret) {
        Prefix own = prefix_first(net);

        *ret = (Address) {};
        if (net->tag == NET_TAG4) {
                ret->in.sin_family = AF_INET;
                ret->in.sin_port = htons(port);
                memcpy(&ret->in.sin_addr, own.addr, sizeof(ret->in.sin_addr));
                return sizeof(ret->in);
        }
        ret->in6.sin6_family = AF_INET6;
        ret->in6.sin6_port = htons(port);
        memcpy(&ret->in6.sin6_addr, own.addr, sizeof(ret->in6.sin6_addr));
        return sizeof(ret->in6);
}

static int set(int fd, int level, int option) {
        static const int on = 1;

        return setsockopt(fd, level, option, &on, sizeof(on)) < 0 ? -errno : 0;
}

/* A query is told with the link that it came over: a source address alone could be anybody's on the uplink. */
static int prepare(int fd, int family, int type) {
        int r = 0;

        if (family == AF_INET6)
                r = set(fd, IPPROTO_IPV6, IPV6_V6ONLY);
        if (r >= 0 && type == SOCK_DGRAM)
                r = family == AF_INET ? set(fd, IPPROTO_IP, IP_PKTINFO) : set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO);
        return r;
}

static int add_socket(ResolverSockets *s, const Prefix *net, int type) {
        Address address;
        socklen_t size = own_address(net, s->port, &address);
        _cleanup_close_ int fd = socket(address.any.sa_family, type|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);

        if (fd < 0)
                return -errno;
        int r = prepare(fd, address.any.sa_family, type);
        if (r < 0)
                return r;
        if (bind(fd, &address.any, size) < 0 || getsockname(fd, &address.any, &size) < 0)
                return -errno;
        if (type == SOCK_STREAM && listen(fd, BACKLOG) < 0)
                return -errno;
        s->port = ntohs(net->tag == NET_TAG4 ? address.in.sin_port : address.in6.sin6_port);
        s->fds[s->n++] = TAKE_FD(fd);
        return 0;
}

static int add_pair(ResolverSockets *s, const Prefix *net) {
        int r = add_socket(s, net, SOCK_DGRAM);

        return r < 0 ? r : add_socket(s, net, SOCK_STREAM);
}

void resolver_sockets_done(ResolverSockets *s) {
        close_many(s->fds, s->n);
        *s = (ResolverSockets) {};
}

int resolver_sockets_open(ResolverSockets *s, const Prefix *net4, const Prefix *net6) {
        int r = -EADDRINUSE;

        *s = (ResolverSockets) {};
        for (unsigned i = 0; i < TRIES && r == -EADDRINUSE; i++) {
                resolver_sockets_done(s);
                r = add_pair(s, net4);
                if (r >= 0 && net6->tag != 0)
                        r = add_pair(s, net6);
        }
        if (r < 0)
                resolver_sockets_done(s);
        return r;
}
