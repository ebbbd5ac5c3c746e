/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netlink/msg.h>

#include "net/host-sockets.h"
#include "net/nl-util.h"

#define ALL_STATES 0xffffffffU

typedef struct Sockets {
        uint8_t tag;
        bool spare_new;
        const NetAddr *addr;
        struct inet_diag_sockid *found;
        size_t n_found, n_allocated;
        int error;
} Sockets;

static int on_socket(struct nl_msg *msg, void *userdata) {
        struct nlmsghdr *h = nlmsg_hdr(msg);
        struct inet_diag_msg *d = nlmsg_data(h);
        Sockets *s = userdata;

        if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY || !nlmsg_valid_hdr(h, sizeof(*d)) ||
            memcmp(d->id.idiag_dst, s->addr, s->tag == NET_TAG4 ? 4 : 16) != 0)
                return NL_OK;
        if (s->n_found == s->n_allocated) {
                size_t n = s->n_allocated ? 2 * s->n_allocated : 64;
                struct inet_diag_sockid *found = reallocarray(s->found, n, sizeof(*found));
                if (!found) {
                        s->error = -ENOMEM;
                        return NL_STOP;
                }
                s->found = found;
                s->n_allocated = n;
        }
        s->found[s->n_found++] = d->id;
        return NL_OK;
}

static int open_diag(Sockets *s, struct nl_sock **ret) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = nl_socket_alloc();

        if (!sk)
                return -ENOMEM;
        (void) nl_socket_modify_cb(sk, NL_CB_VALID, NL_CB_CUSTOM, on_socket, s);
        int r = nl_connect(sk, NETLINK_SOCK_DIAG);
        if (r < 0)
                return nl_to_errno(r);
        *ret = TAKE_PTR(sk);
        return 0;
}

static struct inet_diag_req_v2 request(const Sockets *s) {
        return (struct inet_diag_req_v2) {
                .sdiag_family = s->tag == NET_TAG4 ? AF_INET : AF_INET6,
                .sdiag_protocol = IPPROTO_TCP,
                .idiag_states = s->spare_new ? ALL_STATES & ~(1U << TCP_SYN_SENT) : ALL_STATES,
        };
}

int host_sockets_destroy(__u8 tag, const NetAddr *addr, bool spare_new, unsigned *ret_ended) {
        _cleanup_(nl_socket_freep) struct nl_sock *sk = NULL;
        Sockets s = { .tag = tag, .spare_new = spare_new, .addr = addr };
        struct inet_diag_req_v2 q = request(&s);
        unsigned ended = 0;

        int r = open_diag(&s, &sk);
        if (r >= 0)
                r = nl_to_errno(nl_send_simple(sk, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &q, sizeof(q)));
        if (r >= 0)
                r = nl_to_errno(nl_recvmsgs_default(sk));
        if (r >= 0)
                r = s.error;
        for (size_t i = 0; r >= 0 && i < s.n_found; i++) {
                q.id = s.found[i];
                r = nl_to_errno(nl_send_simple(sk, SOCK_DESTROY, NLM_F_ACK, &q, sizeof(q)));
                if (r < 0)
                        break;
                r = nl_to_errno(nl_wait_for_ack(sk));
                if (r >= 0)
                        ended++;
                /* It has ended by itself meanwhile. */
                if (r == -ENOENT)
                        r = 0;
        }
        free(s.found);
        *ret_ended = ended;
        return r < 0 ? r : 0;
}
