/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <time.h>

#include "base/packet-client.h"
#include "net/net-client.h"
#include "net/net-proto.h"

#define NET_PENDING_MAX 4096U
#define NET_QUEUE_MAX (1024U * 1024U)
/* cube-netd does one thing after the other, each in milliseconds. */
#define NET_TIMEOUT_USEC (20 * USEC_PER_SEC)

typedef struct Request {
        NetClient *client;
        NetnsDone done;        /* NULL once cancelled */
        void *userdata;
        struct Request *next;
} Request;

struct NetClient {
        sd_event *event;
        sd_event_source *source, *timer;
        PacketClient *packets;
        Request *requests;
};

static const PacketProtocol protocol = {
        .magic = NET_PROTO_MAGIC,
        .version = NET_PROTO_VERSION,
        .max_pending = NET_PENDING_MAX,
        .max_queued_bytes = NET_QUEUE_MAX,
        /* What an answer sets off is a fork: one a round of the loop. */
        .per_round = 1,
};

int net_client_new(sd_event *event, NetClient **ret) {
        NetClient *c = new0(NetClient, 1);
        if (!c)
                return -ENOMEM;
        c->event = sd_event_ref(event);
        *ret = c;
        return 0;
}

void net_client_detach(NetClient *c) {
        c->source = sd_event_source_disable_unref(c->source);
        c->timer = sd_event_source_disable_unref(c->timer);
        packet_client_free(TAKE_PTR(c->packets));
}

NetClient *net_client_free(NetClient *c) {
        if (!c)
                return NULL;
        net_client_detach(c);
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

static void read_message(const PacketBody *body, char *buf, size_t size) {
        TlvReader reader = TLV_READER_INIT(body->data, body->size);
        Tlv t;

        buf[0] = 0;
        while (tlv_next(&reader, &t) > 0)
                if (t.tag == NET_TAG_MESSAGE)
                        (void) snprintf(buf, size, "%.*s", (int) MIN(t.len, 256U), (const char *) t.data);
}

static void on_reply(int error, const PacketBody *body, void *userdata) {
        Request *q = userdata;
        char message[300];
        int nothing = -EBADF;

        for (Request **i = &q->client->requests; *i; i = &(*i)->next)
                if (*i == q) {
                        *i = q->next;
                        break;
                }

        read_message(body, message, sizeof(message));
        if (error >= 0 && body->n_fds != 1)
                error = -EBADMSG;
        if (error < 0 && !*message)
                (void) snprintf(message, sizeof(message), "%s",
                                error == -ECONNRESET ? "cube-netd ended, it is being restarted" :
                                error == -ETIMEDOUT ? "cube-netd did not answer" : strerror(-error));
        if (q->done)
                q->done(error, message, body->n_fds > 0 ? body->fds : &nothing, q->userdata);
        free(q);
}

int net_client_new_netns(NetClient *c, NetnsDone done, void *userdata) {
        if (!c->packets)
                return -ENOTCONN;

        Request *q = new0(Request, 1);
        if (!q)
                return -ENOMEM;
        *q = (Request) { .client = c, .done = done, .userdata = userdata, .next = c->requests };

        int r = packet_client_call(c->packets, NET_OP_NETNS_NEW, NULL, NULL, 0, NET_TIMEOUT_USEC, on_reply, q);
        if (r < 0) {
                free(q);
                return r;
        }
        c->requests = q;
        rearm(c);
        return 0;
}

void net_client_cancel(NetClient *c, void *userdata) {
        for (Request *q = c->requests; q; q = q->next)
                if (q->userdata == userdata)
                        q->done = NULL;
}
