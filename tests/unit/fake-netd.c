/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/fd-util.h"
#include "base/packet-client.h"
#include "daemon/host-network-private.h"
#include "tests/unit/fake-netd.h"

static void check(bool ok, const char *what) {
        if (ok)
                return;
        fprintf(stderr, "fake-netd: %s\n", what);
        abort();
}

void fake_netd_stop(FakeNetd *f) {
        f->fd = safe_close(f->fd);
}

void fake_netd_start(FakeNetd *f) {
        int ends[2];

        fake_netd_stop(f);
        check(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, ends) >= 0, "socketpair");
        f->fd = ends[0];
        check(net_client_attach(f->manager->net, ends[1]) >= 0, "attach");
        host_network_attached(f->manager->network);
}

/* Everything that is ready. */
static void run_loop(FakeNetd *f) {
        while (sd_event_run(f->manager->event, 0) > 0)
                ;
}

static bool readable(const FakeNetd *f, int timeout_msec) {
        struct pollfd p = { .fd = f->fd, .events = POLLIN };

        return poll(&p, 1, timeout_msec) > 0 && (p.revents & POLLIN);
}

static FakeRequest parse(const uint8_t *packet, size_t size) {
        FakeRequest q = {};
        PacketHeader h;
        Tlv t;

        check(size >= sizeof(h), "a short packet");
        memcpy(&h, packet, sizeof(h));
        check(h.magic == NET_PROTO_MAGIC && h.len == size - sizeof(h), "a broken packet");
        q.op = h.op;
        q.seq = h.seq;
        TlvReader r = TLV_READER_INIT(packet + sizeof(h), h.len);
        while (tlv_next(&r, &t) > 0) {
                if (t.tag == NET_TAG_SLOT)
                        (void) tlv_get_u32(&t, &q.slot);
                else if (t.tag == NET_TAG_POLICY)
                        (void) tlv_get_u32(&t, &q.policy);
                else if (t.tag == NET_TAG_ALLOW && q.n_texts < ELEMENTSOF(q.texts))
                        (void) snprintf(q.texts[q.n_texts++], sizeof(q.texts[0]), "%.*s", (int) t.len, (const char *) t.data);
        }
        return q;
}

FakeRequest fake_netd_take(FakeNetd *f, NetOp op) {
        static uint8_t packet[PACKET_SIZE_MAX];
        int fds[PACKET_FDS_LIMIT];
        size_t n_fds;

        for (uint64_t end = now_usec() + 60 * USEC_PER_SEC; !readable(f, 0) && now_usec() < end;)
                (void) sd_event_run(f->manager->event, 50 * USEC_PER_MSEC);
        check(readable(f, 0), "no request came");
        ssize_t n = recv_packet(f->fd, packet, sizeof(packet), fds, ELEMENTSOF(fds), &n_fds);
        check(n > 0, "recv");
        close_many(fds, n_fds);
        FakeRequest q = parse(packet, (size_t) n);
        q.n_fds = n_fds;
        if (q.op != op) {
                fprintf(stderr, "fake-netd: request %u came, not %u\n", q.op, op);
                abort();
        }
        return q;
}

bool fake_netd_idle(FakeNetd *f) {
        const SlotPool *p = &f->manager->network->pool;

        run_loop(f);
        /* Filling it waits for a moment; after a failure for long, and then nothing comes. */
        while (p->timer && p->delay_usec == 0 && sd_event_source_get_enabled(p->timer, NULL) > 0)
                (void) sd_event_run(f->manager->event, UINT64_MAX);
        run_loop(f);
        return !readable(f, 0);
}

static void send_answer(FakeNetd *f, const FakeRequest *q, int error, const TlvWriter *w, const int *fds, size_t n_fds) {
        PacketHeader h = {
                .magic = NET_PROTO_MAGIC, .version = NET_PROTO_VERSION, .op = q->op, .flags = PACKET_FLAG_REPLY,
                .seq = q->seq, .error = error, .len = (uint32_t) w->size,
        };
        struct iovec iov[2] = { { &h, sizeof(h) }, { w->data, w->size } };

        check(send_packet(f->fd, iov, w->size > 0 ? 2 : 1, fds, n_fds) >= 0, "send");
        run_loop(f);
}

static uint32_t put_slot(FakeNetd *f, const FakeRequest *q, TlvWriter *w) {
        uint32_t slot = q->slot > 0 ? q->slot : f->next_slot++;
        char address[32];

        (void) snprintf(address, sizeof(address), "10.209.%u.%u", slot / 256, slot % 256);
        tlv_put_u32(w, NET_TAG_SLOT, slot);
        tlv_put_str(w, NET_TAG_ADDRESS4, address);
        tlv_put_u32(w, NET_TAG_MTU, 1500);
        return slot;
}

uint32_t fake_netd_answer(FakeNetd *f, const FakeRequest *q) {
        static const size_t n_fds[NET_OP_PARK + 1] = { [NET_OP_SETUP] = 1, [NET_OP_SLOT_NEW] = 2 };
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);
        int fds[2] = { -EBADF, -EBADF };
        uint32_t number = 0;

        for (size_t i = 0; i < n_fds[q->op]; i++) {
                bool map = q->op == NET_OP_SETUP && f->entries > 0;
                fds[i] = map ? fcntl(f->entries, F_DUPFD_CLOEXEC, 3) : eventfd(0, EFD_CLOEXEC);
                check(fds[i] >= 0, "a descriptor");
        }
        if (q->op == NET_OP_SETUP) {
                tlv_put_str(&w, NET_TAG_NET4, "10.209.0.0/16");
                tlv_put_str(&w, NET_TAG_UPLINK, "eth0");
                tlv_put_u32(&w, NET_TAG_MTU, 1500);
        } else if (q->op == NET_OP_SLOT_NEW)
                number = put_slot(f, q, &w);
        else if (q->op == NET_OP_POLICY_LOAD) {
                number = f->next_policy++;
                tlv_put_u32(&w, NET_TAG_POLICY, number);
                tlv_put_u32(&w, NET_TAG_FLAGS, 0);
        }
        send_answer(f, q, 0, &w, fds, n_fds[q->op]);
        close_many(fds, n_fds[q->op]);
        return number;
}

void fake_netd_fail(FakeNetd *f, const FakeRequest *q, int error, const char *message) {
        _cleanup_tlv_ TlvWriter w = TLV_WRITER_INIT(4096);

        tlv_put_str(&w, NET_TAG_MESSAGE, message);
        send_answer(f, q, error, &w, NULL, 0);
}

void fake_netd_tell(FakeNetd *f, NetEvent event, const TlvWriter *body) {
        PacketHeader h = { .magic = NET_PROTO_MAGIC, .version = NET_PROTO_VERSION, .op = event, .len = (uint32_t) body->size };
        struct iovec iov[2] = { { &h, sizeof(h) }, { body->data, body->size } };

        check(send_packet(f->fd, iov, 2, NULL, 0) >= 0, "send");
        run_loop(f);
}
