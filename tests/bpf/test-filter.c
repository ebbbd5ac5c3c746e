/* SPDX-License-Identifier: Apache-2.0 */

/* The loaded programs, run on packets that no device has seen: the filter against the model of what policies mean,
 * and the translation on every header. Needs root; lives in namespaces of its own. */

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "net/datapath.h"
#include "net/host-link.h"
#include "net/nl-util.h"
#include "net/slot.h"
#include "tests/unit/policy-model.h"
#include "tests/unit/test.h"

/* The mount is seen by nobody else. */
#define BPF_FS "/sys/fs/bpf"
#define PIN_DIR BPF_FS "/cube-test"
#define SLOT 5U
#define POLICY 77U
#define MARK 0x100U

typedef struct Bench {
        Datapath *datapath;
        SlotPlan plan;
        NetSlot slot;
        NetEntry entry;
        int netns, tap;
        uint16_t port;
} Bench;

static Bench *bench;

/* So that the filter finds a way to anywhere. */
static int add_default_route(uint8_t tag) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        _cleanup_(nl_addr_putp) struct nl_addr *dst = NULL;
        _cleanup_(rtnl_route_putp) struct rtnl_route *route = rtnl_route_alloc();
        struct rtnl_nexthop *hop = rtnl_route_nh_alloc();
        int family = tag == NET_TAG4 ? AF_INET : AF_INET6;

        rtnl_route_nh_set_ifindex(hop, (int) if_nametoindex(HOST_LINK));
        rtnl_route_add_nexthop(route, hop);
        rtnl_route_set_family(route, (uint8_t) family);
        rtnl_route_set_scope(route, RT_SCOPE_UNIVERSE);
        int r = nl_open_route(&sk);
        if (r >= 0)
                r = nl_to_errno(nl_addr_parse("default", family, &dst));
        if (r >= 0)
                r = nl_to_errno(rtnl_route_set_dst(route, dst));
        return r < 0 ? r : nl_to_errno(rtnl_route_add(sk, route, NLM_F_CREATE));
}

static void make_namespaces(void) {
        if (geteuid() != 0)
                test_skip("needs root");
        if (unshare(CLONE_NEWNS|CLONE_NEWNET) < 0)
                test_skip("namespaces are not allowed here");
        assert_ok(mount("none", "/", NULL, MS_REC|MS_PRIVATE, NULL));
        assert_ok(mount("bpf", BPF_FS, "bpf", 0, NULL));
}

static void need_bench(void) {
        static const NetConfig config = { .mark = MARK, .audit_interval = 60, .audit_rate = 1, .timeout_tcp = 60, .timeout_udp = 60,
                                          .timeout_closing = 60 };
        char error[200] = "";

        if (bench)
                return;
        make_namespaces();
        Bench *b = new0(Bench, 1);
        assert_ok(prefix_parse("10.209.0.0/16", &b->plan.net4));
        assert_ok(prefix_parse("fd3c:cbed::/64", &b->plan.net6));
        b->plan.mtu = 1500;
        assert_ok(datapath_open(PIN_DIR, &b->datapath));
        assert_ok(datapath_configure(b->datapath, &config));
        assert_ok(host_link_make(&b->plan.net4, &b->plan.net6));
        assert_ok(host_sysctl("ipv6", "all", "forwarding", "1"));
        assert_ok(add_default_route(NET_TAG4));
        assert_ok(add_default_route(NET_TAG6));
        if (slot_make(b->datapath, &b->plan, SLOT, &b->netns, &b->tap, error) < 0)
                test_stop(TEST_FAILED, __LINE__, "%s", error);
        slot_fill(&b->plan, SLOT, &b->slot);
        b->entry = (NetEntry) { .policy = POLICY, .owner = UINT32_MAX };
        bench = b;
}

/* A frame of a sandbox to the remote, or of the remote to it. */
static size_t build(uint8_t *frame, const ModelPacket *m) {
        bool v4 = m->remote.tag == NET_TAG4;
        struct ethhdr eth = { .h_proto = htons(v4 ? ETH_P_IP : ETH_P_IPV6) };
        const NetAddr *own = v4 ? &bench->slot.addr4 : &bench->slot.addr6;
        const void *remote = m->remote.addr, *src = m->inbound ? remote : own, *dst = m->inbound ? own : remote;
        size_t l4;

        memset(frame, 0, 128);
        memcpy(eth.h_source, m->inbound ? bench->slot.mac_host : bench->slot.mac_peer, ETH_ALEN);
        memcpy(eth.h_dest, m->inbound ? bench->slot.mac_peer : bench->slot.mac_host, ETH_ALEN);
        memcpy(frame, &eth, sizeof(eth));
        if (v4) {
                struct iphdr ip = { .version = 4, .ihl = 5, .ttl = 64, .protocol = m->proto, .tot_len = htons(60) };
                memcpy(&ip.saddr, src, 4);
                memcpy(&ip.daddr, dst, 4);
                memcpy(frame + ETH_HLEN, &ip, sizeof(ip));
                l4 = ETH_HLEN + sizeof(ip);
        } else {
                struct ip6_hdr ip = { .ip6_flow = htonl(6U << 28), .ip6_plen = htons(40), .ip6_nxt = m->proto, .ip6_hlim = 64 };
                memcpy(&ip.ip6_src, src, 16);
                memcpy(&ip.ip6_dst, dst, 16);
                memcpy(frame + ETH_HLEN, &ip, sizeof(ip));
                l4 = ETH_HLEN + sizeof(ip);
        }
        /* Each a flow of its own. */
        uint16_t ports[2] = { htons(bench->port++), htons((uint16_t) m->port) };
        if (m->proto == IPPROTO_ICMP || m->proto == IPPROTO_ICMPV6) {
                frame[l4] = v4 ? 8 : 128;
                memcpy(frame + l4 + 4, ports, sizeof(ports[0]));
        } else
                memcpy(frame + l4, ports, sizeof(ports));
        if (m->proto == IPPROTO_TCP) {
                frame[l4 + 12] = 0x50;
                frame[l4 + 13] = 2;
        }
        return l4 + 40;
}

typedef struct Run {
        uint8_t out[4096];
        uint32_t size, verdict, mark;
} Run;

static void run(const char *program, NetLink link, const uint8_t *frame, size_t size, bool forwarded, Run *ret) {
        struct __sk_buff in = { .ifindex = link == NET_LINK_HOST ? NET_IFINDEX(SLOT, (unsigned) link) : 0 }, out = {};
        LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = (uint32_t) size, .data_out = ret->out,
                    .data_size_out = sizeof(ret->out), .ctx_in = &in, .ctx_size_in = sizeof(in), .ctx_out = &out,
                    .ctx_size_out = sizeof(out), .repeat = 1);

        if (forwarded)
                in.ingress_ifindex = if_nametoindex(HOST_LINK);
        assert_ok(bpf_prog_test_run_opts(datapath_program_fd(bench->datapath, program), &opts));
        ret->size = opts.data_size_out;
        ret->verdict = opts.retval;
        ret->mark = out.mark;
}

static bool filter_passes(const ModelPacket *m) {
        uint8_t frame[128];
        size_t size = build(frame, m);
        Run r;

        run(m->inbound ? "to_sandbox" : "from_sandbox", NET_LINK_HOST, frame, size, m->inbound, &r);
        assert_true(r.verdict == TC_ACT_OK || r.verdict == TC_ACT_SHOT);
        if (!m->inbound)
                assert_eq(r.verdict == TC_ACT_OK, r.mark == MARK);
        return r.verdict == TC_ACT_OK;
}

static void drop_flows(void) {
        NetSweep sweep = { .what = NET_SWEEP_DROP, .slot = SLOT };
        uint8_t packet[ETH_HLEN + sizeof(sweep)] = {};
        Run r;

        memcpy(packet + ETH_HLEN, &sweep, sizeof(sweep));
        run("sweep", NET_LINK_TAP, packet, sizeof(packet), false, &r);
}

static void load(const Policy *p) {
        _cleanup_(policy_table_freep) PolicyTable *t = NULL;
        char error[POLICY_ERROR_MAX];

        assert_ok(policy_compile(p, NULL, 0, &t, error));
        assert_ok(datapath_add_policy(bench->datapath, POLICY, t));
        bench->entry.generation++;
        assert_ok(datapath_set_entry(bench->datapath, SLOT, &bench->entry));
}

static void use(const Policy *p) {
        load(p);
        drop_flows();
}

/* Of a protocol without ports there is one flow for both directions. */
static void forget(const ModelPacket *m) {
        NetFlowKey key = { .slot = SLOT, .tag = m->remote.tag, .proto = m->proto };

        memcpy(&key.remote, m->remote.addr, sizeof(key.remote));
        (void) bpf_map_delete_elem(datapath_map_fd(bench->datapath, "flows"), &key);
}

/* The host's own network is a place that no policy of the model knows of. */
static bool is_hosts(const ModelPacket *m) {
        return prefix_covers(&bench->plan.net4, &m->remote) || prefix_covers(&bench->plan.net6, &m->remote);
}

/* Where the routing table has a word of its own. */
static bool is_routable(const ModelPacket *m) {
        static const char *const odd[] = { "0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "ff00::/8", "fe80::/10", "::/127", "169.254.0.0/16" };

        for (size_t i = 0; i < ELEMENTSOF(odd); i++) {
                Prefix p;
                assert_ok(prefix_parse(odd[i], &p));
                if (prefix_covers(&p, &m->remote))
                        return false;
        }
        return !is_hosts(m);
}

TEST(the_filter_says_what_the_rules_say) {
        unsigned seed = 2, allowed = 0, denied = 0;

        need_bench();
        for (unsigned i = 0; i < 120; i++) {
                _cleanup_(policy_freep) Policy *p = NULL;
                Model m;

                model_random(&m, &seed);
                assert_ok(model_policy(&m, &p));
                use(p);
                for (unsigned k = 0; k < 60; k++) {
                        char text[PREFIX_TEXT_MAX];
                        ModelPacket packet;

                        model_packet(&m, &seed, &packet);
                        bool expected = model_allows(&m, &packet);
                        if (expected && !is_routable(&packet))
                                continue;
                        if (packet.proto == IPPROTO_SCTP)
                                forget(&packet);
                        if (filter_passes(&packet) != expected)
                                test_stop(TEST_FAILED, __LINE__, "policy %u: %s proto %u port %u inbound %d should be %d", i,
                                          prefix_format(text, &packet.remote), packet.proto, packet.port, packet.inbound, expected);
                        expected ? allowed++ : denied++;
                }
        }
        assert_true(allowed > 1000 && denied > 1000);
}

static void open_internet(void) {
        _cleanup_(policy_freep) Policy *p = NULL;

        assert_ok(policy_new(POLICY_DEFAULT_INTERNET, &p));
        use(p);
}

TEST(frames_of_any_length_are_read_no_further_than_they_go) {
        ModelPacket m = { .proto = IPPROTO_TCP, .port = 80 };
        uint8_t frame[128];

        need_bench();
        open_internet();
        for (unsigned v6 = 0; v6 < 2; v6++) {
                assert_ok(prefix_parse(v6 ? "2001:db8::1" : "8.8.8.8", &m.remote));
                size_t size = build(frame, &m), needed = (v6 ? 54 : 34) + 20;
                /* The kernel does not run programs on less than an IP header; tests with a tap do. */
                for (size_t n = needed - 20; n <= size; n++) {
                        Run r;
                        run("from_sandbox", NET_LINK_HOST, frame, n, false, &r);
                        assert_eq(r.verdict, n < needed ? TC_ACT_SHOT : TC_ACT_OK);
                }
        }
}

/* Noise in every byte behind what makes it a packet of the sandbox: never passes with a forged source, never
 * more than the verdicts there are. */
TEST(noise_is_survived) {
        ModelPacket m = { .proto = IPPROTO_UDP, .port = 53 };
        unsigned seed = 3;
        uint8_t frame[128];

        need_bench();
        open_internet();
        for (unsigned i = 0; i < 20000; i++) {
                bool v6 = rand_r(&seed) & 1;
                assert_ok(prefix_parse(v6 ? "2001:db8::1" : "8.8.8.8", &m.remote));
                m.inbound = rand_r(&seed) & 1;
                size_t size = build(frame, &m);
                for (unsigned n = (unsigned) rand_r(&seed) % 6; n > 0; n--)
                        frame[ETH_HLEN + (unsigned) rand_r(&seed) % (size - ETH_HLEN)] = (uint8_t) rand_r(&seed);
                if (rand_r(&seed) % 4 == 0)
                        frame[v6 ? 20 : 23] = (uint8_t[]) { 0, 1, 6, 17, 43, 44, 58, 60 }[rand_r(&seed) % 8];
                Run r;
                run(m.inbound ? "to_sandbox" : "from_sandbox", NET_LINK_HOST, frame, size, m.inbound, &r);
                assert_true(r.verdict == TC_ACT_OK || r.verdict == TC_ACT_SHOT);
                const void *own = v6 ? (const void *) &bench->slot.addr6 : &bench->slot.addr4;
                if (r.verdict == TC_ACT_OK && !m.inbound)
                        assert_eq(memcmp(r.out + (v6 ? 22 : 26), own, v6 ? 16 : 4), 0);
        }
}

TEST(what_passes_has_one_hop_and_a_right_header) {
        ModelPacket m = { .proto = IPPROTO_UDP, .port = 53 };
        uint8_t frame[128];
        Run r;

        need_bench();
        open_internet();
        assert_ok(prefix_parse("8.8.8.8", &m.remote));
        size_t size = build(frame, &m);
        uint32_t sum = 0;
        for (unsigned i = 0; i < 20; i += 2)
                sum += (uint32_t) frame[ETH_HLEN + i] << 8 | frame[ETH_HLEN + i + 1];
        sum = (sum & 0xffff) + (sum >> 16);
        frame[ETH_HLEN + 10] = (uint8_t) (~sum >> 8);
        frame[ETH_HLEN + 11] = (uint8_t) ~sum;
        run("from_sandbox", NET_LINK_HOST, frame, size, false, &r);
        assert_eq(r.out[ETH_HLEN + 8], 1);
        sum = 0;
        for (unsigned i = 0; i < 20; i += 2)
                sum += (uint32_t) r.out[ETH_HLEN + i] << 8 | r.out[ETH_HLEN + i + 1];
        assert_eq((sum & 0xffff) + (sum >> 16), 0xffff);
}

TEST(other_links_get_nothing_through) {
        ModelPacket m = { .proto = IPPROTO_UDP, .port = 53 };
        static const char *const programs[] = { "from_sandbox", "to_sandbox", "from_guest", "to_guest" };
        uint8_t frame[128];

        need_bench();
        open_internet();
        assert_ok(prefix_parse("8.8.8.8", &m.remote));
        size_t size = build(frame, &m);
        for (size_t i = 0; i < ELEMENTSOF(programs); i++) {
                Run r;
                run(programs[i], NET_LINK_TAP, frame, size, false, &r);
                assert_eq(r.verdict, TC_ACT_SHOT);
        }
}

/* A reset goes on to the other end of what was cut. It has a number of the guest's choice in it: to whom the guest may not
 * talk, and never did, it would carry data. */
TEST(what_never_was_a_flow_ends_with_the_filter) {
        static const uint8_t flags[] = { 0x02, 0x10, 0x11, 0x12, 0x18, 0x00 };
        _cleanup_(policy_freep) Policy *p = NULL;
        ModelPacket m = { .proto = IPPROTO_TCP, .port = 443 };

        need_bench();
        assert_ok(policy_new(POLICY_DEFAULT_DENY, &p));
        use(p);
        for (size_t i = 0; i < 2 * ELEMENTSOF(flags); i++) {
                uint8_t frame[128];
                Run r;

                assert_ok(prefix_parse(i % 2 == 0 ? "8.8.8.8" : "2001:db8::1", &m.remote));
                size_t size = build(frame, &m);
                frame[(i % 2 == 0 ? 34 : 54) + 13] = flags[i / 2];
                run("from_sandbox", NET_LINK_HOST, frame, size, false, &r);
                assert_eq(r.verdict, TC_ACT_SHOT);
        }
}

TEST(the_other_end_of_what_is_cut_gets_one_reset) {
        _cleanup_(policy_freep) Policy *p = NULL;
        ModelPacket m = { .proto = IPPROTO_TCP, .port = 443 };
        uint8_t frame[128];
        Run r;

        need_bench();
        open_internet();
        assert_ok(prefix_parse("8.8.8.8", &m.remote));
        size_t size = build(frame, &m);
        run("from_sandbox", NET_LINK_HOST, frame, size, false, &r);
        assert_eq(r.verdict, TC_ACT_OK);
        assert_ok(policy_new(POLICY_DEFAULT_DENY, &p));
        load(p);
        frame[34 + 13] = 0x10;
        run("from_sandbox", NET_LINK_HOST, frame, size, false, &r);
        assert_eq(r.verdict, TC_ACT_OK);
        assert_eq(r.out[34 + 13], 0x04);
        run("from_sandbox", NET_LINK_HOST, frame, size, false, &r);
        assert_eq(r.verdict, TC_ACT_SHOT);
}

/* As IPv4 has it; port 80 for the first one. */
static bool fragment_passes(ModelPacket *m, uint16_t id, bool later, bool forwarded) {
        uint8_t frame[128];
        size_t size = build(frame, m);
        uint16_t words[2] = { htons(id), htons(later ? 64 : 0x2000) };
        Run r;

        memcpy(frame + ETH_HLEN + 4, words, sizeof(words));
        run("to_sandbox", NET_LINK_HOST, frame, size, forwarded, &r);
        return r.verdict == TC_ACT_OK;
}

TEST(a_parked_one_is_not_woken_by_the_rest_of_what_came_before) {
        static const NetConfig config = { .mark = MARK, .audit_interval = 60, .audit_rate = 1, .timeout_tcp = 60, .timeout_udp = 60,
                                          .timeout_closing = 60, .ingress_uids = { 65534 }, .n_ingress_uids = 1 };
        ModelPacket m = { .proto = IPPROTO_UDP, .port = 80, .inbound = true };

        need_bench();
        open_internet();
        /* A packet of no socket has the user that stands for nobody. */
        assert_ok(datapath_configure(bench->datapath, &config));
        assert_ok(prefix_parse("10.209.0.1", &m.remote));
        assert_true(fragment_passes(&m, 1, false, false) && fragment_passes(&m, 1, true, false));

        NetEntry entry = bench->entry, parked = { .policy = NET_POLICY_DENY, .flags = NET_ENTRY_PARKED | NET_ENTRY_CLOSED };
        parked.generation = entry.generation + 1;
        assert_ok(datapath_set_entry(bench->datapath, SLOT, &parked));
        assert_true(!fragment_passes(&m, 1, true, false) && !fragment_passes(&m, 2, false, false) && !fragment_passes(&m, 2, true, false));

        parked.generation++;
        parked.flags = NET_ENTRY_PARKED;
        assert_ok(datapath_set_entry(bench->datapath, SLOT, &parked));
        assert_true(!fragment_passes(&m, 1, true, false) && !fragment_passes(&m, 2, true, false));
        /* The datagram that does wake it comes whole. */
        assert_true(fragment_passes(&m, 3, false, false) && fragment_passes(&m, 3, true, false));

        /* It runs again, and lacks nothing of what waits in its tap. */
        entry.generation = bench->entry.generation = parked.generation + 1;
        assert_ok(datapath_set_entry(bench->datapath, SLOT, &entry));
        assert_true(fragment_passes(&m, 3, true, false));
        drop_flows();
}

TEST(flows_are_forgotten_when_they_are_old) {
        static const NetConfig quick = { .mark = MARK, .audit_interval = 60, .audit_rate = 1 };
        ModelPacket m = { .proto = IPPROTO_UDP, .port = 53 };
        NetStats before, stats;
        unsigned removed;

        need_bench();
        open_internet();
        assert_ok(prefix_parse("8.8.8.8", &m.remote));
        assert_ok(datapath_get_stats(bench->datapath, SLOT, &before));
        assert_true(filter_passes(&m));
        assert_ok(datapath_expire(bench->datapath, &removed));
        assert_eq(removed, 0);
        assert_ok(datapath_get_stats(bench->datapath, SLOT, &stats));
        assert_eq(stats.flows_open, before.flows_open + 1);
        assert_ok(datapath_configure(bench->datapath, &quick));
        assert_ok(datapath_expire(bench->datapath, &removed));
        assert_eq(removed, 1);
        assert_ok(datapath_get_stats(bench->datapath, SLOT, &stats));
        assert_eq(stats.flows_open, before.flows_open);
}

/* Whoever waited for the bucket may have read the clock before the one that had it. */
TEST(a_clock_that_another_cpu_read_later_fills_no_bucket) {
        static const NetLimits limits = { .packets_out = 8000 };
        ModelPacket m = { .proto = IPPROTO_UDP, .port = 53 };
        uint32_t slot = SLOT;
        NetUsage usage;
        int fd;

        need_bench();
        open_internet();
        assert_ok(prefix_parse("8.8.8.8", &m.remote));
        fd = datapath_map_fd(bench->datapath, "usage");
        assert_ok(datapath_set_limits(bench->datapath, SLOT, &limits));
        assert_ok(bpf_map_lookup_elem(fd, &slot, &usage));
        usage.packets_out = (NetBucket) { .tokens = 1, .filled = INT64_MAX };
        assert_ok(bpf_map_update_elem(fd, &slot, &usage, BPF_ANY));
        assert_true(filter_passes(&m));
        assert_true(!filter_passes(&m));
        assert_ok(datapath_set_limits(bench->datapath, SLOT, NULL));
}

static void put_name(const char *address, uint64_t expires, uint32_t flags) {
        NetNameKey key = { .slot = SLOT, .policy = POLICY };
        NetName name = { .expires = expires, .rule = { .flags = flags }, .name = "example.com" };
        Prefix p;

        assert_ok(prefix_parse(address, &p));
        key.tag = p.tag;
        memcpy(&key.addr, p.addr, sizeof(key.addr));
        assert_ok(bpf_map_update_elem(datapath_map_fd(bench->datapath, "names"), &key, &name, BPF_ANY));
}

TEST(what_a_name_opens) {
        _cleanup_(policy_freep) Policy *p = NULL;
        ModelPacket m = { .proto = IPPROTO_TCP, .port = 443 };
        char error[POLICY_ERROR_MAX];

        need_bench();
        assert_ok(policy_new(POLICY_DEFAULT_INTERNET, &p));
        assert_ok(policy_add(p, POLICY_DENY, "all", error));
        assert_ok(policy_add(p, POLICY_ALLOW, "example.com tcp:443", error));
        assert_ok(policy_add(p, POLICY_ALLOW, "db.example.com in 10.1.0.0/16", error));
        use(p);

        static const struct { const char *address; uint64_t expires; uint32_t flags; bool open; } cases[] = {
                { "8.8.8.8", UINT64_MAX, NET_RULE_ALL, true },
                { "8.8.8.9", UINT64_MAX, NET_RULE_UDP, false },
                { "8.8.8.11", UINT64_MAX, NET_RULE_TCP_PORTS, true },
                { "8.8.8.12", UINT64_MAX, NET_RULE_UDP_PORTS, false },
                { "8.8.8.10", 1, NET_RULE_ALL, false },
                { "10.1.2.3", UINT64_MAX, NET_RULE_ALL, false },
                { "10.1.2.4", UINT64_MAX, NET_RULE_ALL|NET_RULE_SPECIAL, true },
                /* Whoever wrote that: no rule of the policy lets names open it. */
                { "10.2.2.4", UINT64_MAX, NET_RULE_ALL|NET_RULE_SPECIAL, false },
                { "2001:db8::1", UINT64_MAX, NET_RULE_ALL, true },
                { "fd00::1", UINT64_MAX, NET_RULE_ALL, false },
        };
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                assert_ok(prefix_parse(cases[i].address, &m.remote));
                assert_true(!filter_passes(&m));
                put_name(cases[i].address, cases[i].expires, cases[i].flags);
                assert_eq(filter_passes(&m), cases[i].open);
        }
}

TEST(a_flow_that_a_name_opened_outlives_the_answer) {
        _cleanup_(policy_freep) Policy *p = NULL;
        ModelPacket m = { .proto = IPPROTO_TCP, .port = 443 }, other = { .proto = IPPROTO_TCP, .port = 444 };
        char error[POLICY_ERROR_MAX];

        need_bench();
        assert_ok(policy_new(POLICY_DEFAULT_DENY, &p));
        assert_ok(policy_add(p, POLICY_ALLOW, "example.com", error));
        use(p);
        assert_ok(prefix_parse("8.8.4.4", &m.remote));
        other.remote = m.remote;
        put_name("8.8.4.4", UINT64_MAX, NET_RULE_ALL);
        uint16_t port = bench->port;
        assert_true(filter_passes(&m));
        put_name("8.8.4.4", 1, NET_RULE_ALL);
        assert_true(!filter_passes(&other));
        bench->port = port;
        assert_true(filter_passes(&m));
        /* Also when another generation of the policy has it. */
        bench->entry.generation++;
        assert_ok(datapath_set_entry(bench->datapath, SLOT, &bench->entry));
        bench->port = port;
        assert_true(filter_passes(&m));
}
