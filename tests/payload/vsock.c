/* SPDX-License-Identifier: Apache-2.0 */
#include "vsock-packet.h"
#include "vsock.h"

#define LISTEN_PORT 1024U
#define RX_BUFFERS 32U
#define RX_BYTES 32768U

static Queue rx, tx, event;
static uint8_t rx_buffers[RX_BUFFERS][RX_BYTES] __attribute__((aligned(4096)));
static Packet tx_header;
static uint64_t guest_cid;
static Conn conns[CONNS_MAX];
static unsigned conns_used; /* none in use from here on */

static Conn *find(uint32_t host_port, uint32_t local_port) {
        for (Conn *c = conns; c < conns + conns_used; c++)
                if (c->host_port == host_port && c->local_port == local_port && c->state != CONN_FREE)
                        return c;
        return NULL;
}

static Conn *add(uint32_t host_port, uint32_t local_port) {
        for (Conn *c = conns; c < conns + CONNS_MAX; c++)
                if (c->state == CONN_FREE) {
                        memset(c, 0, sizeof(*c));
                        if (c - conns >= conns_used)
                                conns_used = (unsigned) (c - conns) + 1;
                        c->host_port = host_port;
                        c->local_port = local_port;
                        return c;
                }
        return NULL;
}

/* Waits until the device has taken the packet, so that its memory is ours again. */
static void transmit(uint16_t op, uint32_t host_port, uint32_t local_port, const Conn *c, uint32_t flags,
                     const void *data, uint32_t len) {
        uint32_t head, used;

        tx_header = (Packet) {
                .src_cid = guest_cid,
                .dst_cid = HOST_CID,
                .src_port = local_port,
                .dst_port = host_port,
                .len = len,
                .type = VSOCK_STREAM,
                .op = op,
                .flags = flags,
                .buf_alloc = VSOCK_WINDOW,
                .fwd_cnt = c ? c->consumed : 0,
        };
        tx.desc[0] = (Desc) {
                .addr = (uint64_t) &tx_header,
                .len = sizeof(tx_header),
                .flags = len ? DESC_NEXT : 0,
                .next = 1,
        };
        tx.desc[1] = (Desc) { .addr = (uint64_t) data, .len = len };
        queue_offer(&tx, 0);
        queue_kick(&tx);
        while (!queue_take(&tx, &head, &used))
                pause_cpu();
}

static void transmit_conn(Conn *c, uint16_t op, uint32_t flags, const void *data, uint32_t len) {
        c->reported = c->consumed;
        transmit(op, c->host_port, c->local_port, c, flags, data, len);
}

static void post(uint16_t i) {
        rx.desc[i] = (Desc) { .addr = (uint64_t) rx_buffers[i], .len = RX_BYTES, .flags = DESC_WRITE };
        queue_offer(&rx, i);
}

static void close(Conn *c) {
        on_closed(c);
        c->state = CONN_FREE;
}

static void forget(void) {
        for (Conn *c = conns; c < conns + conns_used; c++)
                if (c->state != CONN_FREE)
                        close(c);
        queue_clear(&rx);
        queue_clear(&tx);
        queue_clear(&event);
}

bool vsock_init(void) {
        Device d;

        if (!virtio_find(19, 0, &d) || !virtio_begin(&d, 0))
                return false;
        forget();
        guest_cid = read32(d.config);
        if (!virtio_queue(&d, QUEUE_RX, &rx, true) || !virtio_queue(&d, QUEUE_TX, &tx, false) ||
            !virtio_queue(&d, QUEUE_EVENT, &event, false))
                return false;
        for (uint16_t i = 0; i < RX_BUFFERS; i++)
                post(i);
        virtio_ready(&d);
        queue_kick(&rx);
        return true;
}

Conn *vsock_connect(uint32_t local_port, uint32_t host_port) {
        Conn *c = add(host_port, local_port);

        if (c) {
                c->state = CONN_REQUESTED;
                transmit_conn(c, OP_REQUEST, 0, NULL, 0);
        }
        return c;
}

uint32_t vsock_room(const Conn *c) {
        uint32_t on_way = c->sent - c->peer_fwd;

        return on_way < c->peer_alloc ? c->peer_alloc - on_way : 0;
}

void vsock_send(Conn *c, const void *data, uint32_t len) {
        c->sent += len;
        transmit_conn(c, OP_RW, 0, data, len);
}

void vsock_consumed(Conn *c, uint32_t len) {
        c->consumed += len;
        if (c->state == CONN_OPEN && c->consumed - c->reported >= VSOCK_WINDOW / 2)
                transmit_conn(c, OP_CREDIT_UPDATE, 0, NULL, 0);
}

void vsock_shutdown(Conn *c, bool both) {
        c->done = true;
        transmit_conn(c, OP_SHUTDOWN, both ? SHUTDOWN_SEND | SHUTDOWN_RCV : SHUTDOWN_SEND, NULL, 0);
}

void vsock_abort(Conn *c) {
        transmit_conn(c, OP_RST, 0, NULL, 0);
        close(c);
}

void vsock_try(uint32_t local_port, uint32_t host_port) {
        transmit(OP_REQUEST, host_port, local_port, NULL, 0, NULL, 0);
}

static void request(const Packet *p) {
        Conn *c = p->dst_port == LISTEN_PORT ? add(p->src_port, p->dst_port) : NULL;

        if (!c) {
                transmit(OP_RST, p->src_port, p->dst_port, NULL, 0, NULL, 0);
                return;
        }
        c->state = CONN_OPEN;
        c->peer_alloc = p->buf_alloc;
        c->peer_fwd = p->fwd_cnt;
        transmit_conn(c, OP_RESPONSE, 0, NULL, 0);
        on_connect(c);
}

static void on_shutdown(Conn *c, uint32_t flags) {
        if ((flags & SHUTDOWN_SEND) && !c->host_done) {
                c->host_done = true;
                on_host_done(c);
        }
        /* The host neither reads nor writes: let go, as Linux does. */
        if ((flags & SHUTDOWN_RCV) && c->state == CONN_OPEN && c->host_done) {
                transmit_conn(c, OP_RST, 0, NULL, 0);
                close(c);
        }
}

static void packet(const Packet *p, const uint8_t *data) {
        Conn *c = find(p->src_port, p->dst_port);

        if (!c) {
                if (p->op == OP_REQUEST)
                        request(p);
                else if (p->op != OP_RST)
                        transmit(OP_RST, p->src_port, p->dst_port, NULL, 0, NULL, 0);
                return;
        }

        c->peer_alloc = p->buf_alloc;
        c->peer_fwd = p->fwd_cnt;
        switch (p->op) {
        case OP_RESPONSE:
                c->state = CONN_OPEN;
                on_connect(c);
                break;
        case OP_RW:
                on_data(c, data, p->len);
                break;
        case OP_SHUTDOWN:
                on_shutdown(c, p->flags);
                break;
        case OP_CREDIT_REQUEST:
                transmit_conn(c, OP_CREDIT_UPDATE, 0, NULL, 0);
                break;
        case OP_RST:
                close(c);
        }
}

bool vsock_poll(void) {
        static unsigned unannounced;
        uint32_t head, len;

        bool got = queue_take(&rx, &head, &len);
        if (got) {
                packet((const Packet *) rx_buffers[head], rx_buffers[head] + sizeof(Packet));
                post((uint16_t) head);
                unannounced++;
        }
        if (unannounced >= RX_BUFFERS / 4 || (!got && unannounced > 0)) {
                queue_kick(&rx);
                unannounced = 0;
        }
        return got;
}
