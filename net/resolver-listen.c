/* SPDX-License-Identifier: Apache-2.0 */

/* The sockets that guests' queries come to. Whose a query is tells its source address, which the filter does not let
 * guests forge. Of a packet by UDP it is checked besides that it came over that sandbox's own link; by TCP nobody gets
 * through the handshake with an address that is not his. */

#include <netinet/in.h>
#include <stdio.h>

#include "base/fd-util.h"
#include "net/resolver-private.h"
#include "net/slot.h"

#define PACKETS_ONCE 32U
#define LENGTH_BYTES 2U

struct ResolverListener {
        Resolver *resolver;
        sd_event_source *sources[RESOLVER_SOCKETS_MAX];
        size_t n;
        TcpClient *clients;
        unsigned n_clients;
};

struct TcpClient {
        ResolverListener *listener;
        ResolverSandbox *sandbox;
        sd_event_source *io, *timer;
        uint8_t *in, *out;
        size_t have, sent, out_size;
        TcpClient *next, *previous;
};

static int slot_of(const Resolver *r, const struct sockaddr_storage *peer, uint32_t *ret) {
        const struct sockaddr_in *in = (const struct sockaddr_in *) peer;
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *) peer;
        Prefix p = { .tag = peer->ss_family == AF_INET ? NET_TAG4 : NET_TAG6 };
        const Prefix *net = p.tag == NET_TAG4 ? &r->net4 : &r->net6;
        unsigned last = p.tag == NET_TAG4 ? 3 : 15;

        p.len = p.tag == NET_TAG4 ? 32 : 128;
        memcpy(p.addr, p.tag == NET_TAG4 ? (const void *) &in->sin_addr : &in6->sin6_addr, last + 1);
        if (!prefix_covers(net, &p))
                return -EPERM;
        *ret = (uint32_t) ((p.addr[last - 1] ^ net->addr[last - 1]) << 8 | (p.addr[last] ^ net->addr[last]));
        /* More than that of bits is none of ours. */
        for (unsigned i = 0; i + 1 < last; i++)
                if (p.addr[i] != net->addr[i])
                        return -EPERM;
        return *ret >= SLOT_FIRST ? 0 : -EPERM;
}

static uint32_t link_of(struct msghdr *h) {
        for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
                if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
                        struct in_pktinfo info;
                        memcpy(&info, CMSG_DATA(c), sizeof(info));
                        return (uint32_t) info.ipi_ifindex;
                }
                if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
                        struct in6_pktinfo info;
                        memcpy(&info, CMSG_DATA(c), sizeof(info));
                        return info.ipi6_ifindex;
                }
        }
        return 0;
}

/* 0 when there is nothing more. */
static int read_packet(ResolverListener *l, int fd) {
        union {
                struct cmsghdr header;
                uint8_t bytes[CMSG_SPACE(sizeof(struct in_pktinfo)) + CMSG_SPACE(sizeof(struct in6_pktinfo))];
        } control;
        uint8_t data[DNS_QUERY_MAX];
        Origin origin = { .fd = fd };
        struct iovec iov = { data, sizeof(data) };
        struct msghdr h = { .msg_name = &origin.peer, .msg_namelen = sizeof(origin.peer), .msg_iov = &iov, .msg_iovlen = 1,
                            .msg_control = &control, .msg_controllen = sizeof(control) };
        uint32_t slot;

        ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT);
        if (n < 0)
                return errno == EAGAIN ? 0 : 1;
        origin.peer_size = h.msg_namelen;
        if (h.msg_flags & MSG_TRUNC || slot_of(l->resolver, &origin.peer, &slot) < 0 ||
            link_of(&h) != NET_IFINDEX(slot, NET_LINK_HOST))
                return 1;
        (void) query_begin(l->resolver, slot, &origin, data, (size_t) n);
        return 1;
}

static int on_packet(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        for (unsigned i = 0; i < PACKETS_ONCE && read_packet(userdata, fd) > 0; i++)
                ;
        return 0;
}

static TcpClient *client_free(TcpClient *c) {
        ResolverListener *l = c->listener;

        query_forget(l->resolver, c);
        if (c->previous)
                c->previous->next = c->next;
        else
                l->clients = c->next;
        if (c->next)
                c->next->previous = c->previous;
        l->n_clients--;
        c->sandbox->n_tcp--;
        sd_event_source_disable_unref(c->io);
        sd_event_source_disable_unref(c->timer);
        free(c->in);
        free(c->out);
        free(c);
        return NULL;
}

static int client_wait(TcpClient *c, uint32_t events) {
        int r = sd_event_source_set_io_events(c->io, events);

        if (r >= 0)
                r = sd_event_source_set_time_relative(c->timer, c->listener->resolver->config.tcp_idle_usec);
        return r;
}

/* Written when it can be, never from in here. */
void tcp_client_send(TcpClient *c, const uint8_t *data, size_t size) {
        free(c->out);
        c->out = malloc(LENGTH_BYTES + size);
        c->sent = 0;
        c->out_size = LENGTH_BYTES + size;
        if (!c->out || size > UINT16_MAX) {
                free(TAKE_PTR(c->out));
                (void) shutdown(sd_event_source_get_io_fd(c->io), SHUT_RDWR);
                return;
        }
        c->out[0] = (uint8_t) (size >> 8);
        c->out[1] = (uint8_t) size;
        memcpy(c->out + LENGTH_BYTES, data, size);
        (void) client_wait(c, EPOLLOUT);
}

static int client_write(TcpClient *c, int fd) {
        ssize_t n = send(fd, c->out + c->sent, c->out_size - c->sent, MSG_NOSIGNAL|MSG_DONTWAIT);

        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        c->sent += (size_t) n;
        if (c->sent < c->out_size)
                return 0;
        free(TAKE_PTR(c->out));
        c->have = 0;
        return client_wait(c, EPOLLIN);
}

/* As far as is known. */
static size_t message_size(const TcpClient *c) {
        return c->have >= LENGTH_BYTES ? (size_t) (c->in[0] << 8 | c->in[1]) : 0;
}

static int client_read(TcpClient *c, int fd) {
        Origin origin = { .fd = -EBADF, .tcp = c };

        ssize_t n = recv(fd, c->in + c->have, LENGTH_BYTES + message_size(c) - c->have, MSG_DONTWAIT);
        if (n <= 0)
                return n == 0 ? -ECONNRESET : errno == EAGAIN || errno == EINTR ? 0 : -errno;
        c->have += (size_t) n;
        size_t size = message_size(c);
        if (size > DNS_QUERY_MAX)
                return -EMSGSIZE;
        if (c->have <= LENGTH_BYTES || c->have < LENGTH_BYTES + size)
                return 0;
        /* One query after the other. */
        int r = client_wait(c, 0);
        return r < 0 ? r : query_begin(c->listener->resolver, c->sandbox->slot, &origin, c->in + LENGTH_BYTES, size);
}

static int on_client(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        TcpClient *c = userdata;
        int r = 0;

        if (revents & (EPOLLHUP|EPOLLERR))
                r = -ECONNRESET;
        else if (revents & EPOLLOUT)
                r = client_write(c, fd);
        else if (revents & EPOLLIN)
                r = client_read(c, fd);
        if (r < 0)
                client_free(c);
        return 0;
}

static int on_idle(sd_event_source *s, uint64_t usec, void *userdata) {
        client_free(userdata);
        return 0;
}

/* For one of a sandbox with n of them: the oldest of those that have more than it would then have. */
static bool make_room(ResolverListener *l, unsigned n) {
        TcpClient *oldest = NULL;

        for (TcpClient *c = l->clients; c; c = c->next)
                if (c->sandbox->n_tcp > n + 1)
                        oldest = c;
        if (!oldest)
                return false;
        client_free(oldest);
        return true;
}

static int client_new(ResolverListener *l, ResolverSandbox *s, int *fd) {
        const ResolverConfig *config = &l->resolver->config;
        TcpClient *c;

        if (s->n_tcp >= config->sandbox_tcp_max || (l->n_clients >= config->tcp_max && !make_room(l, s->n_tcp)))
                return -EBUSY;
        c = new0(TcpClient, 1);
        if (!c)
                return -ENOMEM;
        *c = (TcpClient) { .listener = l, .sandbox = s, .next = l->clients, .in = malloc(LENGTH_BYTES + DNS_QUERY_MAX) };
        if (l->clients)
                l->clients->previous = c;
        l->clients = c;
        l->n_clients++;
        s->n_tcp++;
        int r = c->in ? sd_event_add_io(l->resolver->event, &c->io, *fd, EPOLLIN, on_client, c) : -ENOMEM;
        if (r >= 0) {
                (void) sd_event_source_set_io_fd_own(c->io, true);
                (void) TAKE_FD(*fd);
                r = sd_event_add_time_relative(l->resolver->event, &c->timer, CLOCK_MONOTONIC, config->tcp_idle_usec,
                                               USEC_PER_SEC, on_idle, c);
        }
        if (r < 0)
                client_free(c);
        return r;
}

static int on_connection(sd_event_source *source, int listening, uint32_t revents, void *userdata) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof(peer);
        ResolverListener *l = userdata;
        uint32_t slot;

        _cleanup_close_ int fd = accept4(listening, (struct sockaddr *) &peer, &size, SOCK_CLOEXEC|SOCK_NONBLOCK);
        if (fd < 0 || slot_of(l->resolver, &peer, &slot) < 0)
                return 0;
        ResolverSandbox *s = resolver_sandbox_get(l->resolver, slot);
        if (s)
                (void) client_new(l, s, &fd);
        return 0;
}

ResolverListener *resolver_listener_free(ResolverListener *l) {
        if (!l)
                return NULL;
        while (l->clients)
                client_free(l->clients);
        query_forget(l->resolver, NULL);
        for (size_t i = 0; i < l->n; i++)
                sd_event_source_disable_unref(l->sources[i]);
        free(l);
        return NULL;
}

int resolver_listen(Resolver *r, ResolverSockets *sockets) {
        ResolverListener *l;

        r->listener = resolver_listener_free(r->listener);
        l = new0(ResolverListener, 1);
        if (!l) {
                resolver_sockets_done(sockets);
                return -ENOMEM;
        }
        l->resolver = r;
        r->listener = l;
        for (size_t i = 0; i < sockets->n; i++) {
                int k = sd_event_add_io(r->event, &l->sources[i], sockets->fds[i], EPOLLIN, i % 2 == 0 ? on_packet : on_connection, l);
                if (k < 0) {
                        resolver_sockets_done(sockets);
                        return k;
                }
                (void) sd_event_source_set_io_fd_own(l->sources[i], true);
                (void) TAKE_FD(sockets->fds[i]);
                l->n++;
        }
        *sockets = (ResolverSockets) {};
        return 0;
}
