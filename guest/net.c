/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "guest/log.h"
#include "guest/net.h"

#define MAC_BYTES 6U

/* A request to the kernel, built from its front. */
typedef struct NetRequest {
        struct nlmsghdr head;
        uint8_t body[256];
} NetRequest;

static void request_begin(NetRequest *q, uint16_t type, uint16_t flags, const void *fixed, size_t size) {
        *q = (NetRequest) {
                .head = {
                        .nlmsg_len = (uint32_t) NLMSG_LENGTH(size),
                        .nlmsg_type = type,
                        .nlmsg_flags = NLM_F_REQUEST|NLM_F_ACK|flags,
                },
        };
        memcpy(q->body, fixed, size);
}

static void request_put(NetRequest *q, uint16_t type, const void *data, size_t size) {
        struct rtattr a = { .rta_len = (uint16_t) RTA_LENGTH(size), .rta_type = type };
        size_t at = NLMSG_ALIGN(q->head.nlmsg_len);

        assert(at + RTA_SPACE(size) <= sizeof(*q));
        memcpy((uint8_t *) q + at, &a, sizeof(a));
        memcpy((uint8_t *) q + at + RTA_LENGTH(0), data, size);
        q->head.nlmsg_len = (uint32_t) (at + a.rta_len);
}

/* The kernel's answer, which it has ready when send() returns. */
static int request_send(int fd, const NetRequest *q) {
        struct {
                struct nlmsghdr head;
                struct nlmsgerr error;
                uint8_t rest[512];
        } answer;

        if (send(fd, q, q->head.nlmsg_len, 0) < 0)
                return -errno;
        ssize_t n = recv(fd, &answer, sizeof(answer), 0);
        if (n < 0)
                return -errno;
        if ((size_t) n < offsetof(__typeof__(answer), rest) || answer.head.nlmsg_type != NLMSG_ERROR)
                return -EPROTO;
        return answer.error.error;
}

static bool is_ipv6(const AgentNetwork *n) {
        return n->family == 6;
}

static uint8_t af(const AgentNetwork *n) {
        return is_ipv6(n) ? AF_INET6 : AF_INET;
}

static size_t address_bytes(const AgentNetwork *n) {
        return is_ipv6(n) ? 16 : 4;
}

static bool any_set(const uint8_t *p, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (p[i])
                        return true;
        return false;
}

static int change_address(int fd, int index, const AgentNetwork *n, uint16_t type, uint16_t flags) {
        struct ifaddrmsg m = {
                .ifa_family = af(n),
                .ifa_prefixlen = (uint8_t) n->prefix,
                /* Nobody else has it: the network is this guest's own. */
                .ifa_flags = is_ipv6(n) ? IFA_F_NODAD : 0,
                .ifa_index = (uint32_t) index,
        };
        NetRequest q;

        request_begin(&q, type, flags, &m, sizeof(m));
        request_put(&q, IFA_LOCAL, n->address, address_bytes(n));
        request_put(&q, IFA_ADDRESS, n->address, address_bytes(n));
        return request_send(fd, &q);
}

static int set_neighbour(int fd, int index, const AgentNetwork *n) {
        struct ndmsg m = {
                .ndm_family = af(n),
                .ndm_ifindex = index,
                .ndm_state = NUD_PERMANENT,
        };
        NetRequest q;

        if (!any_set(n->gateway_mac, MAC_BYTES))
                return 0;
        request_begin(&q, RTM_NEWNEIGH, NLM_F_CREATE|NLM_F_REPLACE, &m, sizeof(m));
        request_put(&q, NDA_DST, n->gateway, address_bytes(n));
        request_put(&q, NDA_LLADDR, n->gateway_mac, MAC_BYTES);
        return request_send(fd, &q);
}

static int set_default_route(int fd, int index, const AgentNetwork *n) {
        struct rtmsg m = {
                .rtm_family = af(n),
                .rtm_table = RT_TABLE_MAIN,
                .rtm_protocol = RTPROT_STATIC,
                .rtm_scope = RT_SCOPE_UNIVERSE,
                .rtm_type = RTN_UNICAST,
                .rtm_flags = RTNH_F_ONLINK,
        };
        NetRequest q;

        request_begin(&q, RTM_NEWROUTE, NLM_F_CREATE|NLM_F_REPLACE, &m, sizeof(m));
        request_put(&q, RTA_GATEWAY, n->gateway, address_bytes(n));
        request_put(&q, RTA_OIF, &index, sizeof(index));
        return request_send(fd, &q);
}

static int add_network(int fd, int index, const AgentNetwork *n, char *message) {
        char address[INET6_ADDRSTRLEN] = "?", gateway[INET6_ADDRSTRLEN] = "?";

        (void) inet_ntop(af(n), n->address, address, sizeof(address));
        (void) inet_ntop(af(n), n->gateway, gateway, sizeof(gateway));

        snprintf(message, NET_MESSAGE_MAX, "address %s/%u", address, n->prefix);
        int r = change_address(fd, index, n, RTM_NEWADDR, NLM_F_CREATE|NLM_F_REPLACE);
        if (r < 0 || !any_set(n->gateway, sizeof(n->gateway)))
                return r;

        snprintf(message, NET_MESSAGE_MAX, "gateway %s", gateway);
        r = set_neighbour(fd, index, n);
        return r < 0 ? r : set_default_route(fd, index, n);
}

/* Not built in, or switched off. */
static bool no_ipv6(const AgentNetwork *n, int error) {
        return is_ipv6(n) && (error == -EOPNOTSUPP || error == -EAFNOSUPPORT || error == -EACCES);
}

static bool is_in(const AgentNetwork *n, const NetConfig *c) {
        for (unsigned i = 0; i < c->n_networks; i++)
                if (memcmp(&c->networks[i], n, offsetof(AgentNetwork, gateway)) == 0)
                        return true;
        return false;
}

/* Others may have been there since and removed it. */
static void remove_old(int fd, int index, const NetConfig *before, const NetConfig *c) {
        for (unsigned i = 0; i < before->n_networks; i++)
                if (!is_in(&before->networks[i], c))
                        (void) change_address(fd, index, &before->networks[i], RTM_DELADDR, 0);
}

/* By its address, since a name can be anything. */
static int find_card(int fd, struct ifreq *ret) {
        static const uint8_t mac[MAC_BYTES] = AGENT_GUEST_MAC;
        int r = -ENODEV;

        struct if_nameindex *all = if_nameindex();
        if (!all)
                return -errno;
        for (const struct if_nameindex *i = all; i->if_index != 0 && r < 0; i++) {
                struct ifreq ifr = {};

                memcpy(ifr.ifr_name, i->if_name, strnlen(i->if_name, IFNAMSIZ - 1));
                if (ioctl(fd, SIOCGIFHWADDR, &ifr) < 0 || ifr.ifr_hwaddr.sa_family != ARPHRD_ETHER ||
                    memcmp(ifr.ifr_hwaddr.sa_data, mac, sizeof(mac)) != 0)
                        continue;
                *ret = ifr;
                r = (int) i->if_index;
        }
        if_freenameindex(all);
        return r;
}

uint32_t net_card(void) {
        struct ifreq ifr;

        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, 0);
        int index = fd < 0 ? -errno : find_card(fd, &ifr);
        return index < 0 ? 0 : (uint32_t) index;
}

static int set_link(int fd, struct ifreq *ifr, uint32_t mtu, char *message) {
        snprintf(message, NET_MESSAGE_MAX, "MTU %u", mtu);
        ifr->ifr_mtu = (int) mtu;
        if (mtu > 0 && ioctl(fd, SIOCSIFMTU, ifr) < 0)
                return -errno;

        snprintf(message, NET_MESSAGE_MAX, "setting the link up");
        if (ioctl(fd, SIOCGIFFLAGS, ifr) < 0)
                return -errno;
        ifr->ifr_flags |= IFF_UP;
        return ioctl(fd, SIOCSIFFLAGS, ifr) < 0 ? -errno : 0;
}

int net_configure(const NetConfig *c, NetConfig *before, char ret_message[static NET_MESSAGE_MAX]) {
        struct ifreq ifr;

        assert(c);
        assert(before);

        snprintf(ret_message, NET_MESSAGE_MAX, "looking for the card");
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW|SOCK_CLOEXEC, NETLINK_ROUTE);
        _cleanup_close_ int link_fd = socket(AF_INET, SOCK_DGRAM|SOCK_CLOEXEC, 0);
        if (fd < 0 || link_fd < 0)
                return -errno;
        int index = find_card(link_fd, &ifr);
        if (index < 0)
                return index;

        remove_old(fd, index, before, c);
        int r = set_link(link_fd, &ifr, c->mtu, ret_message);
        *before = *c;
        for (unsigned i = 0; i < c->n_networks && r >= 0; i++) {
                r = add_network(fd, index, &c->networks[i], ret_message);
                if (no_ipv6(&c->networks[i], r)) {
                        log_warning("no IPv6 here: %s: %s", ret_message, strerror(-r));
                        r = 0;
                }
        }
        return r;
}
