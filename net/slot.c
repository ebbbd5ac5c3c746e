/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netlink/route/link/veth.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "net/host-link.h"
#include "net/netns.h"
#include "net/nl-util.h"
#include "net/slot.h"

#define VNET_HEADER_BYTES 12

typedef struct Inside {
        Datapath *datapath;
        const SlotPlan *plan;
        unsigned slot;
        int tap;
        const char *failed;    /* step */
} Inside;

unsigned slot_limit(const SlotPlan *plan) {
        unsigned bits = MIN(32U - plan->net4.len, 16U);

        if (plan->net6.tag != 0)
                bits = MIN(bits, 128U - plan->net6.len);
        /* Without the last, which is for broadcasts. */
        return (1U << bits) - 1;
}

static void add_number(NetAddr *a, const Prefix *net, unsigned n) {
        unsigned last = net->tag == NET_TAG4 ? 3 : 15;
        uint8_t bytes[16];

        memcpy(bytes, net->addr, sizeof(bytes));
        bytes[last] |= n & 0xff;
        bytes[last - 1] |= n >> 8 & 0xff;
        memcpy(a, bytes, sizeof(bytes));
}

void slot_fill(const SlotPlan *plan, unsigned slot, NetSlot *ret) {
        uint8_t mac[6] = { 0x02, 0xcb, 0x00, 0x00, (uint8_t) (slot >> 8), (uint8_t) slot };

        *ret = (NetSlot) {};
        add_number(&ret->addr4, &plan->net4, slot);
        if (plan->net6.tag != 0)
                add_number(&ret->addr6, &plan->net6, slot);
        memcpy(ret->mac_host, mac, sizeof(mac));
        mac[2] = 1;
        memcpy(ret->mac_peer, mac, sizeof(mac));
}

void slot_host_name(unsigned slot, char ret[static 16]) {
        (void) snprintf(ret, 16, "cube%u", slot);
}

static int set_mac(struct rtnl_link *link, const uint8_t mac[static 6]) {
        _cleanup_(nl_addr_putp) struct nl_addr *a = nl_addr_build(AF_LLC, mac, 6);

        if (!a)
                return -ENOMEM;
        rtnl_link_set_addr(link, a);
        return 0;
}

static int add_gateway(struct nl_sock *sk, unsigned ifindex, int family, const uint8_t *addr, size_t size, unsigned prefix) {
        _cleanup_(nl_addr_putp) struct nl_addr *local = nl_addr_build(family, addr, size);
        _cleanup_(rtnl_addr_putp) struct rtnl_addr *a = rtnl_addr_alloc();

        if (!local || !a)
                return -ENOMEM;
        nl_addr_set_prefixlen(local, (int) prefix);
        rtnl_addr_set_ifindex(a, (int) ifindex);
        rtnl_addr_set_flags(a, IFA_F_NODAD);
        int r = rtnl_addr_set_local(a, local);
        return nl_to_errno(r < 0 ? r : rtnl_addr_add(sk, a, 0));
}

static int open_tap(unsigned slot, int *ret_fd) {
        _cleanup_close_ int fd = open("/dev/net/tun", O_RDWR|O_CLOEXEC|O_NONBLOCK);
        struct ifreq q = { .ifr_name = "tap0", .ifr_flags = IFF_TAP|IFF_NO_PI|IFF_VNET_HDR };
        unsigned ifindex = NET_IFINDEX(slot, NET_LINK_TAP);
        int size = VNET_HEADER_BYTES;

        if (fd < 0)
                return -errno;
        if (ioctl(fd, TUNSETIFINDEX, &ifindex) < 0 || ioctl(fd, TUNSETIFF, &q) < 0 || ioctl(fd, TUNSETVNETHDRSZ, &size) < 0)
                return -errno;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static int link_up(struct nl_sock *sk, unsigned ifindex, unsigned mtu, const uint8_t *mac) {
        _cleanup_(rtnl_link_putp) struct rtnl_link *which = rtnl_link_alloc(), *change = rtnl_link_alloc();

        if (!which || !change)
                return -ENOMEM;
        rtnl_link_set_ifindex(which, (int) ifindex);
        rtnl_link_set_flags(change, IFF_UP);
        if (mtu > 0)
                rtnl_link_set_mtu(change, mtu);
        if (mac) {
                int r = set_mac(change, mac);
                if (r < 0)
                        return r;
        }
        return nl_to_errno(rtnl_link_change(sk, which, change, 0));
}

/* Nothing of the namespace's stack may be heard or forwarded, but for the gateway's neighbour answers. */
static void quieten(void) {
        static const char *const keys[][3] = {
                { "ipv4", "forwarding", "0" },
                { "ipv6", "forwarding", "0" },
                { "ipv6", "addr_gen_mode", "1" },
                { "ipv6", "accept_ra", "0" },
                { "ipv6", "router_solicitations", "0" },
        };

        for (size_t i = 0; i < ELEMENTSOF(keys); i++)
                (void) host_sysctl(keys[i][0], "default", keys[i][1], keys[i][2]);
}

static int make_tap(void *userdata) {
        static const uint8_t mac[6] = NET_GATEWAY_MAC, gateway4[4] = NET_INNER4(NET_INNER_GATEWAY),
                             gateway6[16] = NET_INNER6(NET_INNER_GATEWAY);
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        unsigned ifindex;
        Inside *in = userdata;

        ifindex = NET_IFINDEX(in->slot, NET_LINK_TAP);
        quieten();
        in->failed = "make a tap";
        int r = open_tap(in->slot, &in->tap);
        if (r >= 0)
                r = nl_open_route(&sk);
        if (r >= 0)
                r = datapath_attach(in->datapath, in->slot, NET_LINK_TAP);
        if (r < 0)
                return r;
        in->failed = "set the tap up";
        r = link_up(sk, ifindex, in->plan->mtu, mac);
        if (r >= 0)
                r = add_gateway(sk, ifindex, AF_INET, gateway4, sizeof(gateway4), NET_INNER4_PREFIX);
        if (r < 0)
                return r;
        /* A host without IPv6 is fine. */
        (void) add_gateway(sk, ifindex, AF_INET6, gateway6, sizeof(gateway6), NET_INNER6_PREFIX);
        return 0;
}

static int make_veth(struct nl_sock *sk, const SlotPlan *plan, unsigned slot, const NetSlot *s, int netns) {
        _cleanup_(rtnl_link_putp) struct rtnl_link *host = rtnl_link_veth_alloc(), *peer = NULL;
        char name[16];

        if (!host)
                return -ENOMEM;
        peer = rtnl_link_veth_get_peer(host);
        slot_host_name(slot, name);
        rtnl_link_set_name(host, name);
        rtnl_link_set_ifindex(host, (int) NET_IFINDEX(slot, NET_LINK_HOST));
        rtnl_link_set_mtu(host, plan->mtu);
        /* No neighbours to be found: what the other end gets is rewritten anyway. */
        rtnl_link_set_flags(host, IFF_NOARP);
        rtnl_link_set_name(peer, "eth0");
        rtnl_link_set_ifindex(peer, (int) NET_IFINDEX(slot, NET_LINK_PEER));
        rtnl_link_set_mtu(peer, plan->mtu);
        rtnl_link_set_flags(peer, IFF_NOARP);
        rtnl_link_set_ns_fd(peer, netns);
        int r = set_mac(host, s->mac_host);
        if (r >= 0)
                r = set_mac(peer, s->mac_peer);
        return r < 0 ? r : nl_to_errno(rtnl_link_add(sk, host, NLM_F_CREATE|NLM_F_EXCL));
}

static int add_route(struct nl_sock *sk, unsigned slot, int family, const NetAddr *addr, const Prefix *net) {
        size_t size = family == AF_INET ? 4 : 16;
        NetAddr own;
        add_number(&own, net, 1);
        _cleanup_(nl_addr_putp) struct nl_addr *dst = nl_addr_build(family, addr, size), *src = nl_addr_build(family, &own, size);
        _cleanup_(rtnl_route_putp) struct rtnl_route *route = rtnl_route_alloc();
        struct rtnl_nexthop *hop = rtnl_route_nh_alloc();

        if (!dst || !src || !route || !hop) {
                rtnl_route_nh_free(hop);
                return -ENOMEM;
        }
        rtnl_route_nh_set_ifindex(hop, (int) NET_IFINDEX(slot, NET_LINK_HOST));
        rtnl_route_add_nexthop(route, hop);
        nl_addr_set_prefixlen(dst, (int) size * 8);
        rtnl_route_set_family(route, (uint8_t) family);
        rtnl_route_set_scope(route, RT_SCOPE_LINK);
        rtnl_route_set_protocol(route, RTPROT_STATIC);
        rtnl_route_set_pref_src(route, src);
        int r = rtnl_route_set_dst(route, dst);
        return nl_to_errno(r < 0 ? r : rtnl_route_add(sk, route, NLM_F_EXCL));
}

static int set_up_peer(void *userdata) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        Inside *in = userdata;

        int r = nl_open_route(&sk);
        if (r >= 0)
                r = datapath_attach(in->datapath, in->slot, NET_LINK_PEER);
        return r < 0 ? r : link_up(sk, NET_IFINDEX(in->slot, NET_LINK_PEER), 0, NULL);
}

static int make_host_side(Inside *in, const NetSlot *s, int netns) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        char name[16];

        in->failed = "make a veth";
        slot_host_name(in->slot, name);
        int r = nl_open_route(&sk);
        if (r >= 0)
                r = make_veth(sk, in->plan, in->slot, s, netns);
        if (r < 0)
                return r;

        in->failed = "attach the filter";
        r = datapath_attach(in->datapath, in->slot, NET_LINK_HOST);
        if (r >= 0)
                r = netns_call(netns, set_up_peer, in);
        if (r < 0)
                return r;

        in->failed = "route to the sandbox";
        (void) host_sysctl("ipv6", name, "addr_gen_mode", "1");
        (void) host_sysctl("ipv6", name, "accept_ra", "0");
        r = host_sysctl("ipv4", name, "forwarding", "1");
        if (r >= 0)
                r = link_up(sk, NET_IFINDEX(in->slot, NET_LINK_HOST), 0, NULL);
        if (r >= 0)
                r = add_route(sk, in->slot, AF_INET, &s->addr4, &in->plan->net4);
        if (r >= 0 && in->plan->net6.tag != 0)
                r = add_route(sk, in->slot, AF_INET6, &s->addr6, &in->plan->net6);
        return r;
}

int slot_make(Datapath *d, const SlotPlan *plan, unsigned slot, int *ret_netns, int *ret_tap, char error[static 200]) {
        Inside in = { .datapath = d, .plan = plan, .slot = slot, .tap = -EBADF, .failed = "make a network namespace" };
        _cleanup_close_ int netns = -EBADF, tap = -EBADF;
        NetSlot s;

        slot_fill(plan, slot, &s);
        int r = netns_new(&netns);
        if (r >= 0)
                r = netns_call(netns, make_tap, &in);
        tap = in.tap;
        if (r >= 0)
                r = make_host_side(&in, &s, netns);
        if (r >= 0) {
                in.failed = "write the slot's addresses down";
                r = datapath_add_slot(d, slot, &s);
        }
        if (r < 0) {
                (void) snprintf(error, 200, "Can't %s for slot %u: %s", in.failed, slot, strerror(-r));
                return r;
        }
        *ret_netns = TAKE_FD(netns);
        *ret_tap = TAKE_FD(tap);
        return 0;
}
