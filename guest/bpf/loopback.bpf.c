/* SPDX-License-Identifier: Apache-2.0 */

/* Which TCP ports only loopback serves, and where connections to them from outside go: to the agent's listeners.
 *
 * The agent has them as tables of instructions (embed-bpf), creates the maps, and puts their descriptors in. */

#include <stddef.h>

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "loopback.bpf.h"

#define AF_INET 2
#define AF_INET6 10

extern char loopback_config;    /* an array of one LoopbackConfig */
extern char loopback_ports;     /* an array of counts, by port */
extern char loopback_listeners; /* a sockmap of the agent's, one for each family */

static __always_inline __u64 weigh4(__u32 address) {
        if (address == bpf_htonl(INADDR_LOOPBACK))
                return LOOPBACK_ONLY4;
        /* Nobody connects to 127.0.0.2 and the like but who knows of them. */
        if ((address & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000))
                return 0;
        return LOOPBACK_OPEN4;
}

static __always_inline __u64 weigh6(__u32 a, __u32 b, __u32 c, __u32 d) {
        if (a == 0 && b == 0 && c == bpf_htonl(0xffff))
                return d == 0 ? LOOPBACK_OPEN4 : weigh4(d);
        if (a != 0 || b != 0 || c != 0)
                return LOOPBACK_OPEN6;
        if (d == bpf_htonl(1))
                return LOOPBACK_ONLY6;
        /* May be without IPv4, which nobody can see here. */
        return d == 0 ? LOOPBACK_OPEN6 | LOOPBACK_OPEN4 : LOOPBACK_OPEN6;
}

/* On the root of the cgroup tree, so for every socket of the guest: its listeners are counted in and out. */
SEC("sockops")
int loopback_count(struct bpf_sock_ops *ctx) {
        int begins = ctx->op == BPF_SOCK_OPS_TCP_LISTEN_CB;
        __u32 zero = 0, port = ctx->local_port;
        __u64 weight;

        if (!begins && (ctx->op != BPF_SOCK_OPS_STATE_CB || ctx->args[0] != BPF_TCP_LISTEN))
                return 1;
        const LoopbackConfig *config = bpf_map_lookup_elem(&loopback_config, &zero);
        /* Containers in the guest have ports of their own. */
        if (!config || bpf_get_netns_cookie(ctx) != config->netns_cookie)
                return 1;
        __u64 *counts = bpf_map_lookup_elem(&loopback_ports, &port);
        if (!counts)
                return 1;

        if (ctx->family == AF_INET)
                weight = weigh4(ctx->local_ip4);
        else if (ctx->family == AF_INET6)
                weight = weigh6(ctx->local_ip6[0], ctx->local_ip6[1], ctx->local_ip6[2], ctx->local_ip6[3]);
        else
                return 1;
        if (begins)
                bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
        __sync_fetch_and_add(counts, begins ? weight : -weight);
        return 1;
}

/* In the network namespace, before the kernel looks for a listener. What passes goes on as if this were not here. */
SEC("sk_lookup")
int loopback_steer(struct bpf_sk_lookup *ctx) {
        __u32 zero = 0, port = ctx->local_port;

        if (ctx->protocol != IPPROTO_TCP)
                return SK_PASS;
        const LoopbackConfig *config = bpf_map_lookup_elem(&loopback_config, &zero);
        if (!config || config->card == 0 || ctx->ingress_ifindex != config->card)
                return SK_PASS;
        const __u64 *counts = bpf_map_lookup_elem(&loopback_ports, &port);
        if (!counts)
                return SK_PASS;

        __u64 n = *counts;
        __u64 open = LOOPBACK_COUNT * (ctx->family == AF_INET ? LOOPBACK_OPEN4 : LOOPBACK_OPEN6);
        __u32 listener = ctx->family == AF_INET ? LOOPBACK_LISTENER4 : LOOPBACK_LISTENER6;
        if ((n & open) || !(n & LOOPBACK_COUNT * (LOOPBACK_ONLY4 | LOOPBACK_ONLY6)))
                return SK_PASS;
        struct bpf_sock *sk = bpf_map_lookup_elem(&loopback_listeners, &listener);
        if (!sk)
                return SK_PASS;
        bpf_sk_assign(ctx, sk, 0);
        bpf_sk_release(sk);
        return SK_PASS;
}
