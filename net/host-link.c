/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <netlink/route/link/veth.h>
#include <stdio.h>

#include "net/host-link.h"
#include "net/nl-util.h"

DEFINE_CLEANUP(DIR *, closedir);

#define ROUTE_LEN_MIN 4U

/* An address of the internet, asked for its route only. */
#define FAR4 { 198, 41, 0, 4 }
#define FAR6 { 0x20, 0x01, 0x05, 0x03, 0xba, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0x30 }

int host_sysctl(const char *family, const char *name, const char *key, const char *value) {
        char path[120], now[16] = "";
        _cleanup_close_ int fd = -EBADF;

        (void) snprintf(path, sizeof(path), "/proc/sys/net/%s/conf/%s/%s", family, name, key);
        fd = open(path, O_RDWR|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        ssize_t n = read(fd, now, sizeof(now) - 1);
        if (n < 0)
                return -errno;
        now[strcspn(now, "\n")] = 0;
        if (streq(now, value))
                return 0;
        return pwrite(fd, value, strlen(value), 0) < 0 ? -errno : 1;
}

bool host_has_ipv6(void) {
        _cleanup_close_ int fd = open("/proc/sys/net/ipv6/conf/all/disable_ipv6", O_RDONLY|O_CLOEXEC);
        char value = '1';

        return fd >= 0 && read(fd, &value, 1) == 1 && value == '0';
}

int host_enable_ipv6(void) {
        _cleanup_(closedirp) DIR *dir = opendir("/proc/sys/net/ipv6/conf");

        if (!dir)
                return -EAFNOSUPPORT;
        for (struct dirent *de = readdir(dir); de; de = readdir(dir)) {
                char path[300], value[8] = "";
                _cleanup_close_ int fd = -EBADF;

                if (de->d_name[0] == '.' || streq(de->d_name, "all"))
                        continue;
                (void) snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%s/accept_ra", de->d_name);
                fd = open(path, O_RDWR|O_CLOEXEC);
                /* 2: also on a host that forwards, or its default route would run out. */
                if (fd >= 0 && read(fd, value, sizeof(value) - 1) > 0 && value[0] == '1')
                        (void) !pwrite(fd, "2", 1, 0);
        }
        return host_sysctl("ipv6", "all", "forwarding", "1");
}

static int tag_family(uint8_t tag) {
        return tag == NET_TAG4 ? AF_INET : AF_INET6;
}

static size_t tag_bytes(uint8_t tag) {
        return tag == NET_TAG4 ? 4 : 16;
}

static bool to_prefix(struct nl_addr *a, Prefix *ret) {
        if (!a || (nl_addr_get_family(a) != AF_INET && nl_addr_get_family(a) != AF_INET6))
                return false;
        *ret = (Prefix) {
                .tag = nl_addr_get_family(a) == AF_INET ? NET_TAG4 : NET_TAG6,
                .len = (uint8_t) nl_addr_get_prefixlen(a),
        };
        memcpy(ret->addr, nl_addr_get_binary_addr(a), MIN(nl_addr_get_len(a), 16U));
        return true;
}

static int add_address(struct nl_sock *sk, int ifindex, const Prefix *net) {
        Prefix own = prefix_first(net);
        _cleanup_(nl_addr_putp) struct nl_addr *local = nl_addr_build(tag_family(own.tag), own.addr, tag_bytes(own.tag));
        _cleanup_(rtnl_addr_putp) struct rtnl_addr *a = rtnl_addr_alloc();

        if (!local || !a)
                return -ENOMEM;
        /* The whole network: what is written on it stays with a restart, and addresses of no sandbox go nowhere. */
        nl_addr_set_prefixlen(local, net->len);
        rtnl_addr_set_ifindex(a, ifindex);
        rtnl_addr_set_flags(a, IFA_F_NODAD);
        int r = nl_to_errno(rtnl_addr_set_local(a, local));
        if (r >= 0)
                r = nl_to_errno(rtnl_addr_add(sk, a, 0));
        return r == -EEXIST ? 0 : r;
}

/* A veth that leads nowhere: what it needs is there wherever a sandbox's links can be made. */
static int add_link(struct nl_sock *sk) {
        _cleanup_(rtnl_link_putp) struct rtnl_link *link = rtnl_link_veth_alloc(), *peer = NULL;

        if (!link)
                return -ENOMEM;
        peer = rtnl_link_veth_get_peer(link);
        rtnl_link_set_name(link, HOST_LINK);
        rtnl_link_set_name(peer, HOST_LINK_PEER);
        rtnl_link_set_flags(link, IFF_NOARP);
        rtnl_link_set_flags(peer, IFF_NOARP);
        int r = nl_to_errno(rtnl_link_add(sk, link, NLM_F_CREATE|NLM_F_EXCL));
        return r == -EEXIST ? 0 : r;
}

static int set_up(struct nl_sock *sk, const char *name, unsigned *ret_ifindex) {
        _cleanup_(rtnl_link_putp) struct rtnl_link *link = NULL, *change = rtnl_link_alloc();

        if (!change)
                return -ENOMEM;
        int r = nl_to_errno(rtnl_link_get_kernel(sk, 0, name, &link));
        if (r < 0)
                return r;
        *ret_ifindex = (unsigned) rtnl_link_get_ifindex(link);
        rtnl_link_set_flags(change, IFF_UP);
        return nl_to_errno(rtnl_link_change(sk, link, change, 0));
}

static struct rtnl_route *shut_route(const Prefix *net, unsigned half) {
        size_t size = tag_bytes(net->tag);
        uint8_t bytes[16];

        memcpy(bytes, net->addr, sizeof(bytes));
        if (half > 0)
                bytes[net->len / 8] |= (uint8_t) (0x80 >> net->len % 8);
        _cleanup_(nl_addr_putp) struct nl_addr *dst = nl_addr_build(tag_family(net->tag), bytes, size);
        struct rtnl_route *route = rtnl_route_alloc();
        if (!dst || !route) {
                rtnl_route_put(route);
                return NULL;
        }
        nl_addr_set_prefixlen(dst, net->len + 1);
        rtnl_route_set_family(route, (uint8_t) tag_family(net->tag));
        rtnl_route_set_scope(route, RT_SCOPE_UNIVERSE);
        rtnl_route_set_protocol(route, RTPROT_STATIC);
        rtnl_route_set_type(route, RTN_UNREACHABLE);
        (void) rtnl_route_set_dst(route, dst);
        return route;
}

/* Addresses that are nobody's at the moment: a connection to one fails at once, and does not hang. In halves, which come
 * before what the link's own address brings, and after the route to each sandbox. */
static int shut_network(struct nl_sock *sk, const Prefix *net, bool shut) {
        for (unsigned half = 0; half < 2; half++) {
                _cleanup_(rtnl_route_putp) struct rtnl_route *route = shut_route(net, half);
                if (!route)
                        return -ENOMEM;
                int r = nl_to_errno(shut ? rtnl_route_add(sk, route, NLM_F_EXCL) : rtnl_route_delete(sk, route, 0));
                if (r < 0 && r != -EEXIST && r != -ESRCH && r != -ENOENT)
                        return r;
        }
        return 0;
}

static int open_network(struct nl_sock *sk, unsigned ifindex, const Prefix *net) {
        int r = add_address(sk, (int) ifindex, net);

        return r < 0 ? r : shut_network(sk, net, true);
}

int host_link_make(const Prefix *net4, const Prefix *net6) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        unsigned ifindex;

        int r = nl_open_route(&sk);
        if (r >= 0)
                r = add_link(sk);
        if (r >= 0)
                r = set_up(sk, HOST_LINK_PEER, &ifindex);
        if (r >= 0)
                r = set_up(sk, HOST_LINK, &ifindex);
        if (r >= 0)
                r = open_network(sk, ifindex, net4);
        return r >= 0 && net6->tag != 0 ? open_network(sk, ifindex, net6) : r;
}

int host_link_remove(void) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        _cleanup_(rtnl_link_putp) struct rtnl_link *link = rtnl_link_alloc();
        Prefix net4, net6;

        if (!link)
                return -ENOMEM;
        rtnl_link_set_name(link, HOST_LINK);
        int r = host_link_get(&net4, &net6);
        if (r >= 0)
                r = nl_open_route(&sk);
        if (r >= 0 && net4.tag != 0)
                r = shut_network(sk, &net4, false);
        if (r >= 0 && net6.tag != 0)
                r = shut_network(sk, &net6, false);
        if (r >= 0)
                r = nl_to_errno(rtnl_link_delete(sk, link));
        return r == -ENODEV || r == -ENOENT ? 0 : r;
}

/* host_ifindex: of the host link; its other end has no addresses. */
static bool is_ours(unsigned ifindex, unsigned host_ifindex) {
        return ifindex == host_ifindex || (ifindex >= NET_IFINDEX_BASE && ifindex < NET_IFINDEX_END);
}

int host_link_get(Prefix *ret_net4, Prefix *ret_net6) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        _cleanup_(nl_cache_freep) struct nl_cache *cache = NULL;
        unsigned ifindex = if_nametoindex(HOST_LINK);

        *ret_net4 = *ret_net6 = (Prefix) {};
        if (ifindex == 0)
                return 0;
        int r = nl_open_route(&sk);
        if (r >= 0)
                r = nl_to_errno(rtnl_addr_alloc_cache(sk, &cache));
        if (r < 0)
                return r;
        for (struct nl_object *o = nl_cache_get_first(cache); o; o = nl_cache_get_next(o)) {
                struct rtnl_addr *a = (struct rtnl_addr *) o;
                Prefix p;
                if (rtnl_addr_get_ifindex(a) != (int) ifindex || rtnl_addr_get_scope(a) == RT_SCOPE_LINK ||
                    !to_prefix(rtnl_addr_get_local(a), &p))
                        continue;
                p.addr[tag_bytes(p.tag) - 1] &= (uint8_t) ~1U;
                *(p.tag == NET_TAG4 ? ret_net4 : ret_net6) = p;
        }
        return 0;
}

static bool overlap(const Prefix *a, const Prefix *b) {
        return prefix_covers(a, b) || prefix_covers(b, a);
}

static void describe(char text[static 200], const Prefix *net, const char *what, const Prefix *other, unsigned ifindex) {
        char a[PREFIX_TEXT_MAX], b[PREFIX_TEXT_MAX], name[IF_NAMESIZE] = "?";

        (void) if_indextoname(ifindex, name);
        (void) snprintf(text, 200, "The sandbox network %s overlaps with the %s %s of %s", prefix_format(a, net), what,
                        prefix_format(b, other), name);
}

static unsigned route_ifindex(struct rtnl_route *route) {
        struct rtnl_nexthop *hop = rtnl_route_nexthop_n(route, 0);
        return hop ? (unsigned) rtnl_route_nh_get_ifindex(hop) : 0;
}

int host_overlaps(const Prefix *net, char text[static 200]) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        _cleanup_(nl_cache_freep) struct nl_cache *addresses = NULL, *routes = NULL;
        unsigned own = if_nametoindex(HOST_LINK);
        Prefix p;

        int r = nl_open_route(&sk);
        if (r >= 0)
                r = nl_to_errno(rtnl_addr_alloc_cache(sk, &addresses));
        if (r >= 0)
                r = nl_to_errno(rtnl_route_alloc_cache(sk, tag_family(net->tag), 0, &routes));
        if (r < 0)
                return r;
        for (struct nl_object *o = nl_cache_get_first(addresses); o; o = nl_cache_get_next(o)) {
                struct rtnl_addr *a = (struct rtnl_addr *) o;
                unsigned ifindex = (unsigned) rtnl_addr_get_ifindex(a);
                if (!is_ours(ifindex, own) && to_prefix(rtnl_addr_get_local(a), &p) && overlap(net, &p)) {
                        describe(text, net, "address", &p, ifindex);
                        return 1;
                }
        }
        for (struct nl_object *o = nl_cache_get_first(routes); o; o = nl_cache_get_next(o)) {
                struct rtnl_route *route = (struct rtnl_route *) o;
                unsigned ifindex = route_ifindex(route);
                /* A default route, in halves or whole, covers everything, and blackholes lead nowhere. */
                if (ifindex == 0 || rtnl_route_get_type(route) != RTN_UNICAST || is_ours(ifindex, own) || rtnl_route_get_table(route) == RT_TABLE_LOCAL ||
                    !to_prefix(rtnl_route_get_dst(route), &p) || p.len < ROUTE_LEN_MIN)
                        continue;
                if (overlap(net, &p)) {
                        describe(text, net, "route", &p, ifindex);
                        return 1;
                }
        }
        return 0;
}

static int link_mtu(struct nl_sock *sk, unsigned ifindex, unsigned *ret_mtu, char ret_name[static 16]) {
        _cleanup_(rtnl_link_putp) struct rtnl_link *link = NULL;

        int r = nl_to_errno(rtnl_link_get_kernel(sk, (int) ifindex, NULL, &link));
        if (r < 0)
                return r;
        *ret_mtu = rtnl_link_get_mtu(link);
        (void) snprintf(ret_name, 16, "%s", rtnl_link_get_name(link));
        return 0;
}

int host_uplink(uint8_t tag, unsigned *ret_ifindex, unsigned *ret_mtu, char ret_name[static 16]) {
        static const uint8_t far4[4] = FAR4, far6[16] = FAR6;
        _cleanup_(nl_addr_putp) struct nl_addr *far =
                nl_addr_build(tag_family(tag), tag == NET_TAG4 ? far4 : far6, tag_bytes(tag));
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        _cleanup_(rtnl_route_putp) struct rtnl_route *route = NULL;
        unsigned metric = 0;

        if (!far)
                return -ENOMEM;
        int r = nl_open_route(&sk);
        if (r < 0)
                return r;
        r = rtnl_route_lookup(sk, far, &route);
        if (r < 0 || rtnl_route_get_type(route) != RTN_UNICAST || route_ifindex(route) == 0)
                return 0;
        *ret_ifindex = route_ifindex(route);
        r = link_mtu(sk, *ret_ifindex, ret_mtu, ret_name);
        if (r < 0)
                return r;
        if (rtnl_route_get_metric(route, RTAX_MTU, &metric) >= 0 && metric > 0 && metric < *ret_mtu)
                *ret_mtu = metric;
        return 1;
}
