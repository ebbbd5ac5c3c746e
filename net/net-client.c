/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/fd-util.h"
#include "base/packet-client.h"
#include "net/net-client.h"
#include "net/net-proto.h"

#define NET_PENDING_MAX 4096U
#define NET_QUEUE_MAX (4U * 1024U * 1024U)
#define NET_BODY_MAX (320U * 1024U)
/* cube-netd does one thing after the other, each in milliseconds. */
#define NET_TIMEOUT_USEC (20 * USEC_PER_SEC)
#define TEXTS_MAX 8U
#define TEXT_MAX 320U

typedef struct Request {
        NetClient *client;
        uint16_t op;
        NetDone done;          /* NULL once cancelled */
        void *userdata;
        struct Request *next;
} Request;

struct NetClient {
        sd_event *event;
        sd_event_source *source, *timer;
        PacketClient *packets;
        bool broken;           /* the peer is gone, what waits for it is told by the loop */
        Request *requests;
        int entries;           /* map that claims are written to; of the last setup */
        NetEventHandler handler;
        void *handler_userdata;
};

/* Copies of the strings of a packet, with their terminators. */
typedef struct Texts {
        char text[TEXTS_MAX][TEXT_MAX];
        size_t n;
} Texts;

static void on_packet_event(uint16_t op, const PacketBody *body, void *userdata);

static const PacketProtocol protocol = {
        .magic = NET_PROTO_MAGIC,
        .version = NET_PROTO_VERSION,
        .max_pending = NET_PENDING_MAX,
        .max_queued_bytes = NET_QUEUE_MAX,
        /* What an answer sets off is a fork: one a round of the loop. */
        .per_round = 1,
        .event = on_packet_event,
};

int net_client_new(sd_event *event, NetClient **ret) {
        NetClient *c = new0(NetClient, 1);
        if (!c)
                return -ENOMEM;
        c->event = sd_event_ref(event);
        c->entries = -EBADF;
        *ret = c;
        return 0;
}

bool net_client_is_connected(const NetClient *c) {
        return c->packets && !c->broken;
}

void net_client_detach(NetClient *c) {
        c->broken = false;
        c->source = sd_event_source_disable_unref(c->source);
        c->timer = sd_event_source_disable_unref(c->timer);
        packet_client_free(TAKE_PTR(c->packets));
}

NetClient *net_client_free(NetClient *c) {
        if (!c)
                return NULL;
        net_client_detach(c);
        safe_close(c->entries);
        sd_event_unref(c->event);
        free(c);
        return NULL;
}

static void rearm(NetClient *c) {
        if (!c->packets)
                return;
        (void) sd_event_source_set_io_events(c->source, packet_client_events(c->packets));

        uint64_t deadline = packet_client_deadline(c->packets);
        if (deadline != UINT64_MAX)
                (void) sd_event_source_set_time(c->timer, deadline);
        (void) sd_event_source_set_enabled(c->timer, deadline != UINT64_MAX ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        NetClient *c = userdata;

        if (packet_client_process(c->packets, revents) < 0)
                net_client_detach(c);
        rearm(c);
        return 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        NetClient *c = userdata;

        packet_client_expire(c->packets, usec);
        rearm(c);
        return 0;
}

int net_client_attach(NetClient *c, int fd) {
        net_client_detach(c);

        int r = sd_event_add_io(c->event, &c->source, fd, EPOLLIN, on_io, c);
        if (r >= 0)
                r = sd_event_add_time(c->event, &c->timer, CLOCK_MONOTONIC, UINT64_MAX, 100 * USEC_PER_MSEC, on_timer, c);
        if (r >= 0)
                r = packet_client_new(fd, &protocol, c, &c->packets);
        if (r < 0)
                net_client_detach(c);
        return r;
}

static const char *keep_text(Texts *texts, const Tlv *t) {
        if (texts->n >= TEXTS_MAX)
                return "";
        char *text = texts->text[texts->n++];
        (void) snprintf(text, TEXT_MAX, "%.*s", (int) MIN(t->len, TEXT_MAX - 1), (const char *) t->data);
        return text;
}

static void read_result(const PacketBody *body, Texts *texts, NetResult *ret) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        uint32_t special = 0, resolving = 0;
        Tlv t;

        *ret = (NetResult) { .message = "", .net4 = "", .net6 = "", .uplink = "", .address4 = "", .address6 = "", .chains = "",
                             .fds = body->fds, .n_fds = body->n_fds };
        struct { uint16_t tag; uint32_t *value; } numbers[] = {
                { NET_TAG_MTU, &ret->mtu }, { NET_TAG_SLOT, &ret->slot }, { NET_TAG_POLICY, &ret->policy },
                { NET_TAG_FLAGS, &ret->flags }, { NET_TAG_SPECIAL, &special }, { NET_TAG_RESOLVING, &resolving }, { NET_TAG_COUNT, &ret->count },
        };
        struct { uint16_t tag; const char **value; } strings[] = {
                { NET_TAG_MESSAGE, &ret->message }, { NET_TAG_NET4, &ret->net4 }, { NET_TAG_NET6, &ret->net6 },
                { NET_TAG_UPLINK, &ret->uplink }, { NET_TAG_ADDRESS4, &ret->address4 }, { NET_TAG_ADDRESS6, &ret->address6 }, { NET_TAG_CHAINS, &ret->chains },
        };
        while (tlv_next(&reader, &t) > 0) {
                for (size_t i = 0; i < ELEMENTSOF(numbers); i++)
                        if (t.tag == numbers[i].tag)
                                (void) tlv_get_u32(&t, numbers[i].value);
                for (size_t i = 0; i < ELEMENTSOF(strings); i++)
                        if (t.tag == strings[i].tag)
                                *strings[i].value = keep_text(texts, &t);
                if (t.tag == NET_TAG_STATISTICS)
                        (void) tlv_get_struct(&t, &ret->stats, sizeof(ret->stats));
        }
        ret->special = special != 0;
        ret->resolving = resolving != 0;
}

/* So many fds has a good answer. */
static size_t answer_fds(uint16_t op) {
        switch (op) {
        case NET_OP_SETUP:
                return 1;
        case NET_OP_SLOT_NEW:
                return 2;
        default:
                return 0;
        }
}

static void unlink_request(Request *q) {
        for (Request **i = &q->client->requests; *i; i = &(*i)->next)
                if (*i == q) {
                        *i = q->next;
                        return;
                }
}

static void on_reply(int error, const PacketBody *body, void *userdata) {
        _cleanup_free_ Request *q = userdata;
        NetResult result;
        Texts texts = {};

        unlink_request(q);
        read_result(body, &texts, &result);
        if (error >= 0 && body->n_fds != answer_fds(q->op))
                error = -EBADMSG;
        if (error < 0 && isempty(result.message))
                result.message = error == -ECONNRESET ? "cube-netd ended, it is being restarted" :
                                 error == -ETIMEDOUT ? "cube-netd did not answer" : strerror(-error);
        if (error >= 0 && q->op == NET_OP_SETUP) {
                safe_close(q->client->entries);
                q->client->entries = TAKE_FD(body->fds[0]);
                result.n_fds = 0;
        }
        if (q->done)
                q->done(error, &result, q->userdata);
}

static int call_fds(NetClient *c, uint16_t op, const TlvWriter *body, const int *fds, size_t n_fds, NetDone done,
                    void *userdata) {
        if (!net_client_is_connected(c))
                return -ENOTCONN;

        Request *q = new0(Request, 1);
        if (!q)
                return -ENOMEM;
        *q = (Request) {
                .client = c,
                .op = op,
                .done = done,
                .userdata = userdata,
                .next = c->requests,
        };

        int r = body ? tlv_writer_finish(body) : 0;
        if (r >= 0)
                r = packet_client_call(c->packets, op, body, fds, n_fds, NET_TIMEOUT_USEC, on_reply, q);
        if (r < 0) {
                free(q);
                c->broken = r == -ENOTCONN;
                return r;
        }
        c->requests = q;
        rearm(c);
        return 0;
}

static int call(NetClient *c, uint16_t op, const TlvWriter *body, NetDone done, void *userdata) {
        return call_fds(c, op, body, NULL, 0, done, userdata);
}

void net_client_cancel(NetClient *c, void *userdata) {
        for (Request *q = c->requests; q; q = q->next)
                if (q->userdata == userdata)
                        q->done = NULL;
}

static void put_text(TlvWriter *w, uint16_t tag, const char *text) {
        if (text)
                tlv_put_str(w, tag, text);
}

int net_client_setup(NetClient *c, const NetSetup *s, NetDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(NET_BODY_MAX);

        put_text(&w, NET_TAG_NET4, s->net4);
        put_text(&w, NET_TAG_NET6, s->net6);
        put_text(&w, NET_TAG_RESOLVER4, s->resolver4);
        put_text(&w, NET_TAG_RESOLVER6, s->resolver6);
        tlv_put_u32(&w, NET_TAG_MARK, s->mark);
        tlv_put_u32(&w, NET_TAG_AUDIT_SEC, s->audit_sec);
        for (size_t i = 0; i < s->n_ingress_uids; i++)
                tlv_put_u32(&w, NET_TAG_INGRESS_UID, s->ingress_uids[i]);
        tlv_put(&w, NET_TAG_LIMITS, &s->limits, sizeof(s->limits));
        return call(c, NET_OP_SETUP, &w, done, userdata);
}

static int call_slot(NetClient *c, uint16_t op, uint32_t slot, NetDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(NET_BODY_MAX);

        tlv_put_u32(&w, NET_TAG_SLOT, slot);
        return call(c, op, &w, done, userdata);
}

int net_client_new_slot(NetClient *c, uint32_t slot, NetDone done, void *userdata) {
        return call_slot(c, NET_OP_SLOT_NEW, slot, done, userdata);
}

int net_client_keep_slot(NetClient *c, uint32_t slot, bool keep, NetDone done, void *userdata) {
        return call_slot(c, keep ? NET_OP_SLOT_KEEP : NET_OP_SLOT_FREE, slot, done, userdata);
}

int net_client_quiesce(NetClient *c, uint32_t slot, NetDone done, void *userdata) {
        return call_slot(c, NET_OP_QUIESCE, slot, done, userdata);
}

int net_client_park(NetClient *c, uint32_t slot, NetDone done, void *userdata) {
        return call_slot(c, NET_OP_PARK, slot, done, userdata);
}

int net_client_get_statistics(NetClient *c, uint32_t slot, NetDone done, void *userdata) {
        return call_slot(c, NET_OP_STATISTICS, slot, done, userdata);
}

int net_client_check(NetClient *c, NetDone done, void *userdata) {
        return call(c, NET_OP_CHECK, NULL, done, userdata);
}

static void put_list(TlvWriter *w, uint16_t tag, const char *const *list) {
        for (; list && *list; list++)
                tlv_put_str(w, tag, *list);
}

static void put_rules(TlvWriter *w, const NetRules *rules) {
        tlv_put_str(w, NET_TAG_DEFAULT, rules->internet ? "internet" : "deny");
        put_list(w, NET_TAG_ALLOW, rules->allow);
        put_list(w, NET_TAG_DENY, rules->deny);
        put_list(w, NET_TAG_INBOUND, rules->inbound);
}

int net_client_load_policy(NetClient *c, const NetRules *rules, NetDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(NET_BODY_MAX);

        put_rules(&w, rules);
        return call(c, NET_OP_POLICY_LOAD, &w, done, userdata);
}

int net_client_drop_policy(NetClient *c, uint32_t policy, NetDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(NET_BODY_MAX);

        tlv_put_u32(&w, NET_TAG_POLICY, policy);
        return call(c, NET_OP_POLICY_DROP, &w, done, userdata);
}

int net_client_set_policy(NetClient *c, uint32_t slot, const NetRules *rules, NetDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(NET_BODY_MAX);

        tlv_put_u32(&w, NET_TAG_SLOT, slot);
        put_rules(&w, rules);
        return call(c, NET_OP_POLICY_SET, &w, done, userdata);
}

int net_client_set_limits(NetClient *c, uint32_t slot, const NetLimits *limits, NetDone done, void *userdata) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(NET_BODY_MAX);

        tlv_put_u32(&w, NET_TAG_SLOT, slot);
        if (limits)
                tlv_put(&w, NET_TAG_LIMITS, limits, sizeof(*limits));
        return call(c, NET_OP_LIMITS_SET, &w, done, userdata);
}

int net_client_claim(NetClient *c, uint32_t slot, const NetEntry *entry) {
        union bpf_attr attr = {
                .map_fd = (uint32_t) c->entries,
                .key = (uintptr_t) &slot,
                .value = (uintptr_t) entry,
                .flags = BPF_EXIST,
        };

        if (c->entries < 0)
                return -ENOTCONN;
        return syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int net_client_get_entry(const NetClient *c, uint32_t slot, NetEntry *ret) {
        union bpf_attr attr = {
                .map_fd = (uint32_t) c->entries,
                .key = (uintptr_t) &slot,
                .value = (uintptr_t) ret,
        };

        if (c->entries < 0)
                return -ENOTCONN;
        return syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

void net_client_close_slot(NetClient *c, int netns_fd, int tap_fd) {
        int fds[2];
        size_t n = 0;

        if (netns_fd >= 0)
                fds[n++] = netns_fd;
        if (tap_fd >= 0)
                fds[n++] = tap_fd;
        /* It closes what comes with a request that asks for nothing. Without it they are closed here after all. */
        if (n > 0 && c)
                (void) call_fds(c, NET_OP_PING, NULL, fds, n, NULL, NULL);
        close_many(fds, n);
}

void net_client_on_event(NetClient *c, NetEventHandler handler, void *userdata) {
        c->handler = handler;
        c->handler_userdata = userdata;
}

static void on_packet_event(uint16_t op, const PacketBody *body, void *userdata) {
        NetClient *c = userdata;
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        static const NetEventKind kinds[] = { NET_DENIED, NET_UPLINK_CHANGED, NET_TABLE_RESTORED, NET_NAME_DENIED, NET_LINKS_GONE };
        NetEventInfo e = { .reason = "", .address = "", .uplink = "", .name = "" };
        Texts texts = {};
        uint32_t direction = 0;
        Tlv t;

        if (!c->handler || op < NET_EVENT_DENIED || op > NET_EVENT_LINKS_GONE)
                return;
        e.kind = kinds[op - NET_EVENT_DENIED];
        struct { uint16_t tag; uint32_t *value; } numbers[] = {
                { NET_TAG_SLOT, &e.slot }, { NET_TAG_PROTOCOL, &e.protocol }, { NET_TAG_PORT, &e.port },
                { NET_TAG_COUNT, &e.count }, { NET_TAG_MTU, &e.mtu }, { NET_TAG_DIRECTION, &direction },
        };
        while (tlv_next(&reader, &t) > 0) {
                for (size_t i = 0; i < ELEMENTSOF(numbers); i++)
                        if (t.tag == numbers[i].tag)
                                (void) tlv_get_u32(&t, numbers[i].value);
                if (t.tag == NET_TAG_REASON)
                        e.reason = keep_text(&texts, &t);
                else if (t.tag == NET_TAG_ADDRESS)
                        e.address = keep_text(&texts, &t);
                else if (t.tag == NET_TAG_UPLINK)
                        e.uplink = keep_text(&texts, &t);
                else if (t.tag == NET_TAG_NAME)
                        e.name = keep_text(&texts, &t);
        }
        e.inbound = direction != 0;
        c->handler(&e, c->handler_userdata);
}
