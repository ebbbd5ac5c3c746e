/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <net/if.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <nftables/libnftables.h>
#include <stdio.h>

#include "net/nft.h"
#include "net/nl-util.h"

#define TABLE "cubed"
#define REMOVE "table inet " TABLE " {}\ndelete table inet " TABLE "\n"
#define RULES_MAX 4096U
#define UNTRACKED_MAX 400U

struct NftTable {
        struct nft_ctx *nft;
        struct nl_sock *events;
        Prefix net4, net6;
        unsigned mark;
        uint16_t resolver_port; /* 0: nobody listens at the networks' first addresses */
        char guarded[IF_NAMESIZE];
        char *listing;         /* as the kernel tells it, right after we made it */
        bool touched;
};

/* In one transaction: there is no moment without the table. */
static const char rules_format[] =
        REMOVE
        "table inet " TABLE " {\n"
        "  comment \"sandboxes of cubed: put back when it is changed\"\n"
        /* What the filter hands over has one hop to live: see net/bpf/filter.h. */
        "  chain prerouting {\n"
        "    type filter hook prerouting priority -150; policy accept;\n"
        "    iifname \"cube*\" meta mark & %1$#x != 0 ip ttl set 64\n"
        "    iifname \"cube*\" meta mark & %1$#x != 0 ip6 hoplimit set 64\n"
        "  }\n"
        /* Queries are many, and no flows to the filter: tracked, they would take the room that all connections have. */
        "  chain queries {\n"
        "    type filter hook prerouting priority raw; policy accept;\n"
        "%5$s"
        "  }\n"
        "  chain answers {\n"
        "    type filter hook output priority raw; policy accept;\n"
        "%6$s"
        "  }\n"
        "  chain input {\n"
        "    type filter hook input priority -150; policy accept;\n"
        "    iifname \"cube*\" meta mark & %1$#x == 0 drop\n"
        "  }\n"
        "  chain forward {\n"
        "    type filter hook forward priority -150; policy accept;\n"
        "    iifname \"cube*\" meta mark & %1$#x == 0 drop\n"
        "%4$s"
        "  }\n"
        "  chain postrouting {\n"
        "    type nat hook postrouting priority srcnat; policy accept;\n"
        "    ip saddr %2$s oifname != \"cube*\" masquerade\n"
        "%3$s"
        "  }\n"
        "}\n";

static int run(NftTable *t, const char *commands) {
        return nft_run_cmd_from_buffer(t->nft, commands) == 0 ? 0 : -EIO;
}

/* What the kernel has of it; "" when there is none. */
static int list(NftTable *t, char **ret) {
        nft_ctx_unbuffer_output(t->nft);
        nft_ctx_buffer_output(t->nft);
        (void) run(t, "list table inet " TABLE);
        char *text = strdup(nft_ctx_get_output_buffer(t->nft));
        if (!text)
                return -ENOMEM;
        *ret = text;
        return 0;
}

static void format_untracked(const NftTable *t, const char *link, const char *address, const char *port,
                             char ret[static UNTRACKED_MAX]) {
        const Prefix *nets[] = { &t->net4, &t->net6 };
        size_t size = 0;

        *ret = 0;
        for (size_t i = 0; t->resolver_port > 0 && i < ELEMENTSOF(nets) && nets[i]->tag != 0; i++) {
                Prefix own = prefix_first(nets[i]);
                char text[PREFIX_TEXT_MAX];
                bool v4 = own.tag == NET_TAG4;
                size += (size_t) snprintf(ret + size, UNTRACKED_MAX - size,
                                          "    %s \"cube*\" %s %s %s meta l4proto { tcp, udp } th %s %u notrack\n", link,
                                          v4 ? "ip" : "ip6", address, prefix_format(text, &own), port, t->resolver_port);
        }
}

static int install(NftTable *t) {
        char text4[PREFIX_TEXT_MAX], text6[PREFIX_TEXT_MAX], rule6[120] = "", guard[120] = "", rules[RULES_MAX];
        char queries[UNTRACKED_MAX], answers[UNTRACKED_MAX];

        if (t->net6.tag != 0)
                (void) snprintf(rule6, sizeof(rule6), "    ip6 saddr %s oifname != \"cube*\" masquerade\n",
                                prefix_format(text6, &t->net6));
        if (*t->guarded)
                (void) snprintf(guard, sizeof(guard), "    meta nfproto ipv4 iifname \"%s\" oifname != \"cube*\" drop\n", t->guarded);
        format_untracked(t, "iifname", "daddr", "dport", queries);
        format_untracked(t, "oifname", "saddr", "sport", answers);
        (void) snprintf(rules, sizeof(rules), rules_format, t->mark, prefix_format(text4, &t->net4), rule6, guard, queries, answers);
        int r = run(t, rules);

        free(t->listing);
        t->listing = NULL;
        return r < 0 ? r : list(t, &t->listing);
}

static int on_message(struct nl_msg *msg, void *userdata) {
        struct nlmsghdr *h = nlmsg_hdr(msg);
        struct nlattr *table;
        NftTable *t = userdata;

        if (h->nlmsg_type >> 8 != NFNL_SUBSYS_NFTABLES)
                return NL_OK;
        /* The first attribute of tables, chains, rules and sets alike is the name of the table. */
        table = nlmsg_find_attr(h, sizeof(struct nfgenmsg), NFTA_TABLE_NAME);
        if (table && nla_strcmp(table, TABLE) == 0)
                t->touched = true;
        return NL_OK;
}

static int open_events(NftTable *t) {
        t->events = nl_socket_alloc();
        if (!t->events)
                return -ENOMEM;
        nl_socket_disable_seq_check(t->events);
        (void) nl_socket_modify_cb(t->events, NL_CB_VALID, NL_CB_CUSTOM, on_message, t);
        int r = nl_connect(t->events, NETLINK_NETFILTER);
        if (r >= 0)
                r = nl_socket_add_memberships(t->events, NFNLGRP_NFTABLES, 0);
        if (r >= 0)
                r = nl_socket_set_nonblocking(t->events);
        return nl_to_errno(r);
}

int nft_table_open(const Prefix *net4, const Prefix *net6, unsigned mark, uint16_t resolver_port, NftTable **ret) {
        _cleanup_(nft_table_freep) NftTable *t = new0(NftTable, 1);

        if (!t)
                return -ENOMEM;
        t->net4 = *net4;
        t->net6 = *net6;
        t->mark = mark;
        t->resolver_port = resolver_port;
        t->nft = nft_ctx_new(NFT_CTX_DEFAULT);
        if (!t->nft)
                return -ENOMEM;
        nft_ctx_buffer_output(t->nft);
        nft_ctx_buffer_error(t->nft);
        int r = open_events(t);
        if (r >= 0)
                r = install(t);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(t);
        return 0;
}

NftTable *nft_table_free(NftTable *t) {
        if (!t)
                return NULL;
        nl_socket_free(t->events);
        if (t->nft)
                nft_ctx_free(t->nft);
        free(t->listing);
        free(t);
        return NULL;
}

int nft_table_guard(NftTable *t, const char *link) {
        if (streq(link, t->guarded))
                return 0;
        (void) snprintf(t->guarded, sizeof(t->guarded), "%s", link);
        return install(t);
}

int nft_table_fd(const NftTable *t) {
        return nl_socket_get_fd(t->events);
}

int nft_table_event(NftTable *t) {
        int r = nl_recvmsgs_default(t->events);
        bool touched = t->touched;

        t->touched = false;
        if (r == -NLE_AGAIN)
                return touched;
        /* Events were lost: any of them may have been about us. */
        return r < 0 || touched;
}

int nft_table_restore(NftTable *t) {
        _cleanup_free_ char *now = NULL;
        int r = list(t, &now);

        if (r < 0 || (t->listing && streq(now, t->listing)))
                return r;
        r = install(t);
        return r < 0 ? r : 1;
}

int nft_table_drop(void) {
        struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);

        if (!nft)
                return -ENOMEM;
        nft_ctx_buffer_error(nft);
        int r = nft_run_cmd_from_buffer(nft, REMOVE);
        nft_ctx_free(nft);
        return r == 0 ? 0 : -EIO;
}
