/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/uio.h>

#include "base/fd-util.h"
#include "net/forward-chains.h"
#include "net/net-proto.h"
#include "net/netd-requests.h"
#include "net/network-names.h"

#define REPLY_MAX 8192U
#define REPLY_FDS_MAX 2U

typedef struct Request {
        Netd *netd;
        PacketHeader header;
        TlvReader body;
        TlvWriter reply;
        int fds[REPLY_FDS_MAX];
        size_t n_fds;
        char error[POLICY_ERROR_MAX];
} Request;

static int send_reply(Request *q, int error) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(REPLY_MAX);
        TlvWriter *body = error < 0 ? &w : &q->reply;

        if (error < 0)
                tlv_put_str(&w, NET_TAG_MESSAGE, *q->error ? q->error : strerror(-error));
        else if (tlv_writer_finish(&q->reply) < 0)
                return tlv_writer_finish(&q->reply);

        PacketHeader h = {
                .magic = NET_PROTO_MAGIC,
                .version = NET_PROTO_VERSION,
                .op = q->header.op,
                .flags = PACKET_FLAG_REPLY,
                .seq = q->header.seq,
                .error = error,
                .len = (uint32_t) body->size,
        };
        struct iovec iov[2] = { { &h, sizeof(h) }, { body->data, body->size } };
        return send_packet(q->netd->fd, iov, body->size > 0 ? 2 : 1, q->fds, error < 0 ? 0 : q->n_fds);
}

static int request_error(Request *q, int error, const char *text) {
        (void) snprintf(q->error, sizeof(q->error), "%s", text);
        return error;
}

/* The first record of this kind. -ENOENT */
static int find(const Request *q, NetTag tag, Tlv *ret) {
        TlvReader r = q->body;
        int k;

        while ((k = tlv_next(&r, ret)) > 0)
                if (ret->tag == tag)
                        return 0;
        return k < 0 ? k : -ENOENT;
}

static int find_u32(const Request *q, NetTag tag, uint32_t *ret) {
        Tlv t;
        int r = find(q, tag, &t);

        return r < 0 ? r : tlv_get_u32(&t, ret);
}

/* NULL when there is none. */
static int find_str(const Request *q, NetTag tag, char **ret) {
        Tlv t;
        int r = find(q, tag, &t);

        if (r == -ENOENT) {
                *ret = NULL;
                return 0;
        }
        return r < 0 ? r : tlv_get_str(&t, ret);
}

static int need_slot(Request *q, uint32_t *ret) {
        int r = find_u32(q, NET_TAG_SLOT, ret);

        if (r < 0 || *ret < SLOT_FIRST || *ret >= NET_SLOTS_MAX)
                return request_error(q, -EINVAL, "The request names no slot");
        return 0;
}

/* One that has links. */
static int need_present_slot(Request *q, uint32_t *ret) {
        NetEntry entry;

        int r = need_slot(q, ret);
        if (r >= 0 && datapath_get_entry(network_datapath(q->netd->network), *ret, &entry) < 0) {
                (void) snprintf(q->error, sizeof(q->error), "There is no slot %u", *ret);
                return -ENOENT;
        }
        return r;
}

static void put_prefix(TlvWriter *w, uint16_t tag, const Prefix *p) {
        char text[PREFIX_TEXT_MAX];

        if (p->tag != 0)
                tlv_put_str(w, tag, prefix_format(text, p));
}

static void put_addr(TlvWriter *w, uint16_t tag, uint8_t family, const NetAddr *a) {
        char text[INET6_ADDRSTRLEN];

        if (a->w[0] != 0 && inet_ntop(family == NET_TAG4 ? AF_INET : AF_INET6, a, text, sizeof(text)))
                tlv_put_str(w, tag, text);
}

static int read_resolver(Request *q, NetTag tag, uint8_t family, NetAddr *ret) {
        _cleanup_free_ char *text = NULL;
        Prefix p;

        int r = find_str(q, tag, &text);
        if (r < 0 || !text)
                return r;
        if (prefix_parse(text, &p) < 0 || p.tag != family)
                return request_error(q, -EINVAL, "The resolver's address can't be read");
        memcpy(ret, p.addr, sizeof(*ret));
        return 0;
}

static int read_filter_config(Request *q, NetConfig *c) {
        TlvReader reader = q->body;
        Tlv t;
        int r;

        *c = (NetConfig) {
                .audit_interval = 60,
                .audit_rate = 10,
                .timeout_tcp = 7440,
                .timeout_udp = 60,
                .timeout_closing = 30,
                .limits = { .flows_open = 1024 },
        };
        while ((r = tlv_next(&reader, &t)) > 0) {
                if (t.tag == NET_TAG_MARK)
                        r = tlv_get_u32(&t, &c->mark);
                else if (t.tag == NET_TAG_AUDIT_SEC)
                        r = tlv_get_u32(&t, &c->audit_interval);
                else if (t.tag == NET_TAG_LIMITS)
                        r = tlv_get_struct(&t, &c->limits, sizeof(c->limits));
                else if (t.tag == NET_TAG_INGRESS_UID && c->n_ingress_uids < ELEMENTSOF(c->ingress_uids))
                        r = tlv_get_u32(&t, &c->ingress_uids[c->n_ingress_uids++]);
                if (r < 0)
                        break;
        }
        if (r >= 0)
                r = read_resolver(q, NET_TAG_RESOLVER4, NET_TAG4, &c->resolver4);
        if (r >= 0)
                r = read_resolver(q, NET_TAG_RESOLVER6, NET_TAG6, &c->resolver6);
        if (r >= 0 && (c->mark == 0 || (c->mark & (c->mark - 1)) != 0))
                return request_error(q, -EINVAL, "The mark has to be one bit");
        return r;
}

static int set_up(Request *q) {
        _cleanup_free_ char *net4 = NULL, *net6 = NULL;
        _cleanup_free_ uint8_t *asked = malloc(q->body.size + 1);
        NetworkConfig config = {};
        Netd *n = q->netd;

        if (!asked)
                return -ENOMEM;
        memcpy(asked, q->body.data, q->body.size);
        int r = find_str(q, NET_TAG_NET4, &net4);
        if (r >= 0)
                r = find_str(q, NET_TAG_NET6, &net6);
        if (r >= 0)
                r = read_filter_config(q, &config.filter);
        if (r < 0)
                return r;
        config.net4 = net4 ?: "auto";
        config.net6 = net6;
        r = network_new(n->pin_dir, &config, &n->network, q->error);
        if (r >= 0)
                r = n->on_setup(n->userdata);
        if (r < 0) {
                n->network = network_free(n->network);
                return r;
        }
        n->setup_size = q->body.size;
        n->setup = TAKE_PTR(asked);
        return 0;
}

/* cubed asks again where a slow host took longer than it waits: the same has the same answer. */
static int handle_setup(Request *q) {
        Netd *n = q->netd;
        int r = n->network ? 0 : set_up(q);

        if (r < 0)
                return r;
        if (n->setup_size != q->body.size || memcmp(n->setup, q->body.data, n->setup_size) != 0)
                return request_error(q, -EALREADY, "The network is set up otherwise already");

        const SlotPlan *plan = network_plan(n->network);
        put_prefix(&q->reply, NET_TAG_NET4, &plan->net4);
        put_prefix(&q->reply, NET_TAG_NET6, &plan->net6);
        tlv_put_u32(&q->reply, NET_TAG_MTU, plan->mtu);
        tlv_put_str(&q->reply, NET_TAG_UPLINK, network_uplink(n->network));
        q->fds[0] = fcntl(datapath_entries_fd(network_datapath(n->network)), F_DUPFD_CLOEXEC, 3);
        if (q->fds[0] < 0)
                return -errno;
        q->n_fds = 1;
        return 0;
}

static int handle_slot_new(Request *q) {
        Network *n = q->netd->network;
        uint32_t wanted = 0;
        unsigned slot;
        NetSlot s;

        int r = find_u32(q, NET_TAG_SLOT, &wanted);
        if (r < 0 && r != -ENOENT)
                return r;
        r = network_slot_new(n, wanted, &slot, &q->fds[0], &q->fds[1], q->error);
        if (r < 0)
                return r;
        q->n_fds = 2;
        slot_fill(network_plan(n), slot, &s);
        tlv_put_u32(&q->reply, NET_TAG_SLOT, slot);
        put_addr(&q->reply, NET_TAG_ADDRESS4, NET_TAG4, &s.addr4);
        put_addr(&q->reply, NET_TAG_ADDRESS6, NET_TAG6, &s.addr6);
        tlv_put_u32(&q->reply, NET_TAG_MTU, network_plan(n)->mtu);
        return 0;
}

static int handle_slot_keep(Request *q, bool keep) {
        uint32_t slot;

        int r = need_slot(q, &slot);
        if (r >= 0)
                network_slot_keep(q->netd->network, slot, keep);
        return r;
}

static int read_default(Request *q, PolicyDefault *ret) {
        _cleanup_free_ char *text = NULL;

        int r = find_str(q, NET_TAG_DEFAULT, &text);
        if (r < 0)
                return r;
        if (!text || streq(text, "deny"))
                *ret = POLICY_DEFAULT_DENY;
        else if (streq(text, "internet"))
                *ret = POLICY_DEFAULT_INTERNET;
        else
                return request_error(q, -EINVAL, "A policy's default is \"deny\" or \"internet\"");
        return 0;
}

static int read_policy(Request *q, Policy **ret) {
        _cleanup_(policy_freep) Policy *p = NULL;
        TlvReader reader = q->body;
        PolicyDefault def;
        Tlv t;

        int r = read_default(q, &def);
        if (r >= 0)
                r = policy_new(def, &p);
        if (r < 0)
                return r;
        while ((r = tlv_next(&reader, &t)) > 0) {
                _cleanup_free_ char *text = NULL;
                if (t.tag != NET_TAG_ALLOW && t.tag != NET_TAG_DENY && t.tag != NET_TAG_INBOUND)
                        continue;
                r = tlv_get_str(&t, &text);
                if (r >= 0)
                        r = policy_add(p, t.tag == NET_TAG_ALLOW ? POLICY_ALLOW : t.tag == NET_TAG_DENY ? POLICY_DENY :
                                          POLICY_INBOUND, text, q->error);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(p);
        return 0;
}

static void put_policy(Request *q, const NetworkPolicy *p) {
        tlv_put_u32(&q->reply, NET_TAG_POLICY, p->id);
        tlv_put_u32(&q->reply, NET_TAG_FLAGS, p->flags);
        tlv_put_u32(&q->reply, NET_TAG_SPECIAL, p->special);
}

static int handle_policy_load(Request *q) {
        _cleanup_(policy_freep) Policy *p = NULL;
        NetworkPolicy loaded;

        int r = read_policy(q, &p);
        if (r >= 0)
                r = network_policy_load(q->netd->network, p, &loaded, q->error);
        if (r >= 0)
                put_policy(q, &loaded);
        return r;
}

static int handle_policy_drop(Request *q) {
        uint32_t id;

        int r = find_u32(q, NET_TAG_POLICY, &id);
        if (r < 0)
                return request_error(q, -EINVAL, "The request names no policy");
        r = network_policy_drop(q->netd->network, id);
        if (r < 0)
                (void) snprintf(q->error, sizeof(q->error), "There is no policy %u that could be dropped", id);
        return r;
}

static int handle_policy_set(Request *q) {
        _cleanup_(policy_freep) Policy *p = NULL;
        NetworkPolicy loaded;
        uint32_t slot, id = 0;

        int r = need_present_slot(q, &slot);
        if (r < 0)
                return r;
        r = find_u32(q, NET_TAG_POLICY, &id);
        if (r == -ENOENT)
                r = read_policy(q, &p);
        if (r >= 0)
                r = network_policy_set(q->netd->network, slot, p, id, &loaded, q->error);
        if (r >= 0)
                put_policy(q, &loaded);
        return r;
}

static int handle_limits_set(Request *q) {
        Datapath *d = network_datapath(q->netd->network);
        NetLimits limits;
        uint32_t slot;
        Tlv t;

        int r = need_present_slot(q, &slot);
        if (r < 0)
                return r;
        r = find(q, NET_TAG_LIMITS, &t);
        if (r == -ENOENT)
                return datapath_set_limits(d, slot, NULL);
        if (r >= 0)
                r = tlv_get_struct(&t, &limits, sizeof(limits));
        return r < 0 ? r : datapath_set_limits(d, slot, &limits);
}

static int handle_statistics(Request *q) {
        NetStats stats;
        uint32_t slot;

        int r = need_present_slot(q, &slot);
        if (r >= 0)
                r = datapath_get_stats(network_datapath(q->netd->network), slot, &stats);
        if (r >= 0)
                tlv_put(&q->reply, NET_TAG_STATISTICS, &stats, sizeof(stats));
        return r;
}

static int handle_quiesce(Request *q, bool park) {
        uint32_t slot;
        unsigned ended = 0;

        int r = need_slot(q, &slot);
        if (r >= 0)
                r = network_slot_quiesce(q->netd->network, slot, park, &ended);
        if (r >= 0)
                tlv_put_u32(&q->reply, NET_TAG_COUNT, ended);
        return r;
}

/* Anybody may have this host checked as often as he likes, and on some hosts there is much to be listed. */
static int know_chains(Netd *n) {
        struct pollfd p = { .fd = network_nft_fd(n->network), .events = POLLIN };

        if (n->chains_known && poll(&p, 1, 0) == 0)
                return 0;
        int r = forward_chains_find(n->chains);
        n->chains_known = r >= 0;
        return r;
}

static int handle_check(Request *q) {
        int r = know_chains(q->netd);
        if (r < 0)
                return request_error(q, r, "Can't read the host's nftables chains");
        tlv_put_str(&q->reply, NET_TAG_CHAINS, q->netd->chains);
        tlv_put_u32(&q->reply, NET_TAG_RESOLVING, q->netd->resolver && netd_resolver_is_connected(q->netd->resolver));
        return 0;
}

static int dispatch(Request *q) {
        switch (q->header.op) {
        case NET_OP_PING:
                return 0;
        case NET_OP_SETUP:
                return handle_setup(q);
        }
        if (q->header.op > NET_OP_PARK)
                return request_error(q, -EOPNOTSUPP, "cube-netd does not know this request");
        if (!q->netd->network)
                return request_error(q, -ENOTCONN, "The network has not been set up");
        switch (q->header.op) {
        case NET_OP_SLOT_NEW:
                return handle_slot_new(q);
        case NET_OP_SLOT_KEEP:
                return handle_slot_keep(q, true);
        case NET_OP_SLOT_FREE:
                return handle_slot_keep(q, false);
        case NET_OP_POLICY_LOAD:
                return handle_policy_load(q);
        case NET_OP_POLICY_DROP:
                return handle_policy_drop(q);
        case NET_OP_POLICY_SET:
                return handle_policy_set(q);
        case NET_OP_LIMITS_SET:
                return handle_limits_set(q);
        case NET_OP_STATISTICS:
                return handle_statistics(q);
        case NET_OP_QUIESCE:
        case NET_OP_PARK:
                return handle_quiesce(q, q->header.op == NET_OP_PARK);
        case NET_OP_CHECK:
                return handle_check(q);
        }
        return request_error(q, -EOPNOTSUPP, "cube-netd does not know this request");
}

int netd_handle(Netd *n, const uint8_t *packet, size_t size) {
        Request q = { .netd = n, .reply = TLV_WRITER_INIT(REPLY_MAX) };

        if (size < sizeof(q.header))
                return -EBADMSG;
        memcpy(&q.header, packet, sizeof(q.header));
        if (q.header.magic != NET_PROTO_MAGIC || q.header.version != NET_PROTO_VERSION ||
            q.header.len != size - sizeof(q.header))
                return -EBADMSG;
        q.body = TLV_READER_INIT(packet + sizeof(q.header), q.header.len);

        int error = dispatch(&q);
        int r = send_reply(&q, error < 0 ? error : 0);
        close_many(q.fds, q.n_fds);
        tlv_writer_done(&q.reply);
        return r;
}

/* False: cubed does not listen, and it is lost. */
static bool send_event(Netd *n, NetEvent event, const TlvWriter *body) {
        struct pollfd p = { .fd = n->fd, .events = POLLOUT };
        PacketHeader h = {
                .magic = NET_PROTO_MAGIC,
                .version = NET_PROTO_VERSION,
                .op = (uint16_t) event,
                .len = (uint32_t) body->size,
        };
        struct iovec iov[2] = { { &h, sizeof(h) }, { body->data, body->size } };

        return tlv_writer_finish(body) >= 0 && poll(&p, 1, 0) == 1 && p.revents == POLLOUT &&
                send_packet(n->fd, iov, body->size > 0 ? 2 : 1, NULL, 0) >= 0;
}

static const char *const reasons[_NET_REASON_MAX] = {
        [NET_ALLOWED] = "allowed",
        [NET_DENIED_POLICY] = "policy",
        [NET_DENIED_SPECIAL] = "special-range",
        [NET_DENIED_HOST] = "host",
        [NET_DENIED_INBOUND] = "inbound",
        [NET_DENIED_OWNER] = "owner",
        [NET_DENIED_SPOOFED] = "spoofed",
        [NET_DENIED_MALFORMED] = "malformed",
        [NET_DENIED_RATE] = "rate",
        [NET_DENIED_FLOWS] = "flows",
        [NET_DENIED_FRAGMENT] = "fragment",
        [NET_DENIED_UNRELATED] = "unrelated",
};

void netd_tell_denied(Netd *n, const NetAuditEvent *event) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(REPLY_MAX);
        char address[INET6_ADDRSTRLEN] = "", name[NET_NAME_MAX];

        if (event->what.reason >= _NET_REASON_MAX)
                return;
        (void) inet_ntop(event->what.tag == NET_TAG6 ? AF_INET6 : AF_INET, &event->what.remote, address, sizeof(address));
        tlv_put_u32(&w, NET_TAG_SLOT, event->what.slot);
        tlv_put_str(&w, NET_TAG_REASON, reasons[event->what.reason]);
        tlv_put_u32(&w, NET_TAG_PROTOCOL, event->what.proto);
        tlv_put_str(&w, NET_TAG_ADDRESS, address);
        tlv_put_u32(&w, NET_TAG_PORT, ntohs(event->what.remote_port));
        tlv_put_u32(&w, NET_TAG_COUNT, event->count);
        tlv_put_u32(&w, NET_TAG_DIRECTION, event->what.inbound);
        network_name_of(network_datapath(n->network), event->what.slot, event->what.tag, &event->what.remote, name);
        if (*name && !event->what.inbound)
                tlv_put_str(&w, NET_TAG_NAME, name);
        (void) send_event(n, NET_EVENT_DENIED, &w);
}

void netd_tell_name_denied(Netd *n, const NameDenied *denied) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(REPLY_MAX);

        tlv_put_u32(&w, NET_TAG_SLOT, denied->slot);
        tlv_put_str(&w, NET_TAG_REASON, denied->reason);
        tlv_put_str(&w, NET_TAG_NAME, denied->name);
        tlv_put_str(&w, NET_TAG_ADDRESS, denied->address);
        tlv_put_u32(&w, NET_TAG_COUNT, denied->count);
        (void) send_event(n, NET_EVENT_NAME_DENIED, &w);
}

void netd_tell_uplink(Netd *n) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(REPLY_MAX);

        tlv_put_str(&w, NET_TAG_UPLINK, network_uplink(n->network));
        tlv_put_u32(&w, NET_TAG_MTU, network_plan(n->network)->mtu);
        (void) send_event(n, NET_EVENT_UPLINK, &w);
}

void netd_tell_links_gone(Netd *n, unsigned slot) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(REPLY_MAX);

        tlv_put_u32(&w, NET_TAG_SLOT, n->links_untold ? 0 : slot);
        n->links_untold = !send_event(n, NET_EVENT_LINKS_GONE, &w);
}

void netd_tell_table(Netd *n) {
        (void) send_event(n, NET_EVENT_TABLE, &TLV_WRITER_INIT(0));
}
