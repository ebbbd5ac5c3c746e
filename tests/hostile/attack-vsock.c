/* SPDX-License-Identifier: Apache-2.0 */
/* A vsock peer that lies: about lengths, about who it is, about what it has taken, and about how many it is. */

#include "base/agent-proto.h"
#include "hostile.h"
#include "tests/payload/clock.h"
#include "tests/payload/vsock-packet.h"

#define RX_BUFFERS 32U
#define RX_PAGE 16U               /* the first of data's pages that they lie in */
#define TX_PACKETS 64U            /* the same page by page: 64 bytes for each */
#define TX_PAGE 48U
#define PAYLOAD_PAGE 0U
#define FRAME_HEADER_BYTES 12U
#define NOBODY 4242U
#define GUEST_CID 3U
#define WINDOW (1U << 18)

static Raw r;

static bool open_vsock(unsigned buffers) {
        if (!raw_open(&r, target_find("vsock"), 0, TX_PACKETS)) {
                say("vsock", -1, "does not start");
                return false;
        }
        for (unsigned i = 0; i < buffers; i++) {
                r.rings[QUEUE_RX].desc[i] = (Desc) { .addr = (uint64_t) data[RX_PAGE + i], .len = PAGE, .flags = DESC_WRITE };
                /* For those who only move the index. */
                r.rings[QUEUE_RX].avail[2 + buffers + i] = (uint16_t) i;
                ring_offer(&r.rings[QUEUE_RX], (uint16_t) i);
        }
        ring_kick(&r.rings[QUEUE_RX]);
        return true;
}

static Packet packet(uint32_t src_port, uint32_t dst_port, uint16_t op) {
        return (Packet) { .src_cid = GUEST_CID, .dst_cid = HOST_CID, .src_port = src_port, .dst_port = dst_port,
                          .type = VSOCK_STREAM, .op = op, .buf_alloc = WINDOW };
}

/* With so many bytes behind it, wherever they lie, whatever it says about them. */
static Outcome send(const Packet *p, uint32_t bytes) {
        Desc *d = r.rings[QUEUE_TX].desc;
        uint32_t len;

        memcpy(data[TX_PAGE], p, sizeof(*p));
        d[0] = (Desc) { .addr = (uint64_t) data[TX_PAGE], .len = sizeof(*p), .flags = bytes ? DESC_NEXT : 0, .next = 1 };
        d[1] = (Desc) { .addr = (uint64_t) data[PAYLOAD_PAGE], .len = bytes };
        ring_offer(&r.rings[QUEUE_TX], 0);
        ring_kick(&r.rings[QUEUE_TX]);
        return raw_wait(&r, &r.rings[QUEUE_TX], &len);
}

static Outcome send_op(uint32_t src_port, uint32_t dst_port, uint16_t op, uint32_t flags) {
        Packet p = packet(src_port, dst_port, op);

        p.flags = flags;
        return send(&p, 0);
}

static Outcome send_data(uint32_t src_port, uint32_t dst_port, uint32_t bytes) {
        Packet p = packet(src_port, dst_port, OP_RW);

        p.len = bytes;
        return send(&p, bytes);
}

/* The next packet of the host's. op is OP_INVALID when none comes, or the device has stopped. */
static Packet receive(void) {
        uint32_t head, len;

        for (uint64_t end = 0; clock_patient(&end);) {
                if (ring_take(&r.rings[QUEUE_RX], &head, &len)) {
                        Packet p;

                        memcpy(&p, (const void *) r.rings[QUEUE_RX].desc[head].addr, sizeof(p));
                        ring_offer(&r.rings[QUEUE_RX], (uint16_t) head);
                        ring_kick(&r.rings[QUEUE_RX]);
                        return p;
                }
                pause_cpu();
        }
        return (Packet) { .op = OP_INVALID };
}

static const char *op_name(uint16_t op) {
        static const char *const names[] = {
                "nothing", "request", "response", "reset", "shutdown", "data", "credit", "credit-request",
        };

        return op < ELEMENTSOF(names) ? names[op] : "nonsense";
}

/* What comes back, credit aside. */
static const char *answer(void) {
        for (unsigned i = 0; i < 1000; i++) {
                Packet p = receive();

                if (p.op != OP_CREDIT_UPDATE && p.op != OP_CREDIT_REQUEST)
                        return op_name(p.op);
        }
        return "credit without end";
}

/* A control stream, as the agent's. False: it was not let in. */
static bool open_control(void) {
        if (!open_vsock(RX_BUFFERS) || send_op(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT, OP_REQUEST, 0) != OUTCOME_USED)
                return false;
        if (receive().op == OP_RESPONSE)
                return true;
        say("control", -1, "not let in");
        return false;
}

static uint32_t put_frame(uint32_t len, uint16_t type, uint32_t id) {
        uint32_t header[3] = { len, type, id };

        memset(data[PAYLOAD_PAGE], 0, PAGE);
        memcpy(data[PAYLOAD_PAGE], header, sizeof(header));
        return FRAME_HEADER_BYTES + len;
}

/* P11: one packet each. */

static void odd_packet(const char *what, Packet p, uint32_t bytes, bool answered) {
        if (!open_vsock(RX_BUFFERS))
                return;
        Outcome o = send(&p, bytes);
        if (o != OUTCOME_USED) {
                say(what, -1, outcome_name(o));
                return;
        }
        /* Behind what is not answered: the answer to this is the first. */
        if (!answered)
                (void) send_op(NOBODY, NOBODY, OP_REQUEST, 0);
        Packet a = receive();
        if (answered)
                say(what, -1, op_name(a.op));
        else
                say(what, -1, a.op == OP_RST && a.dst_port == NOBODY ? "ignored" : "answered");
}

static Packet with_type(Packet p, uint16_t type) {
        p.type = type;
        return p;
}

static Packet with_cids(Packet p, uint64_t src, uint64_t dst) {
        p.src_cid = src;
        p.dst_cid = dst;
        return p;
}

static Packet with_len(Packet p, uint32_t len) {
        p.len = len;
        return p;
}

static void attack_packets(void) {
        const Packet request = packet(5, AGENT_CONTROL_PORT, OP_REQUEST), rw = packet(5, AGENT_CONTROL_PORT, OP_RW);

        odd_packet("seqpacket", with_type(request, 2), 0, true);
        odd_packet("no-type", with_type(request, 0), 0, true);
        odd_packet("no-op", packet(5, AGENT_CONTROL_PORT, 0), 0, true);
        odd_packet("unknown-op", packet(5, AGENT_CONTROL_PORT, 0xffff), 0, true);
        odd_packet("high-port", packet(UINT32_MAX, AGENT_CONTROL_PORT, OP_REQUEST), 0, true);
        odd_packet("response", packet(5, 0x40000000, OP_RESPONSE), 0, true);
        odd_packet("data", with_len(rw, 100), 100, true);
        odd_packet("reset", packet(5, 5, OP_RST), 0, false);
        odd_packet("another-guest", with_cids(request, 4, HOST_CID), 0, false);
        odd_packet("host-to-host", with_cids(request, HOST_CID, HOST_CID), 0, false);
        odd_packet("to-a-neighbour", with_cids(request, GUEST_CID, 4), 0, false);
        odd_packet("any-cid", with_cids(request, GUEST_CID, UINT64_MAX), 0, false);
        odd_packet("longer-than-it-is", with_len(rw, 101), 100, false);
        odd_packet("long", with_len(rw, 65537), 65537, false);
        odd_packet("endless", with_len(rw, UINT32_MAX), 100, false);
}

static void attack_packet_frames(void) {
        uint32_t len;

        if (!open_vsock(RX_BUFFERS))
                return;
        r.rings[QUEUE_TX].desc[0] = (Desc) { .addr = (uint64_t) data[0], .len = sizeof(Packet) - 1 };
        ring_offer(&r.rings[QUEUE_TX], 0);
        ring_kick(&r.rings[QUEUE_TX]);
        say("short-header", -1, outcome_name(raw_wait(&r, &r.rings[QUEUE_TX], &len)));

        if (!open_vsock(0))
                return;
        r.rings[QUEUE_RX].desc[0] = (Desc) { .addr = (uint64_t) data[RX_PAGE], .len = sizeof(Packet), .flags = DESC_WRITE };
        ring_offer(&r.rings[QUEUE_RX], 0);
        ring_kick(&r.rings[QUEUE_RX]);
        (void) send_op(5, 5, OP_REQUEST, 0);
        say("narrow-buffer", -1, outcome_name(raw_wait(&r, &r.rings[QUEUE_RX], &len)));
}

/* The control stream is opened and closed in every odd way. */

static void control_case(const char *what, uint16_t op, uint32_t flags) {
        if (!open_control())
                return;
        (void) send_op(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT, op, flags);
        say(what, -1, answer());
}

static void attack_half_closes(void) {
        control_case("send", OP_SHUTDOWN, SHUTDOWN_SEND);
        control_case("receive", OP_SHUTDOWN, SHUTDOWN_RCV);
        control_case("both", OP_SHUTDOWN, SHUTDOWN_SEND | SHUTDOWN_RCV);
        control_case("all-flags", OP_SHUTDOWN, UINT32_MAX);
        control_case("again", OP_REQUEST, 0);
        control_case("response", OP_RESPONSE, 0);
}

/* A frame that is too long to be one, and one that never ends. */
static void attack_long_frames(void) {
        if (!open_control())
                return;
        (void) put_frame(AGENT_FRAME_MAX + 1, AGENT_READY, 0);
        (void) send_data(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT, 100);
        say("too-long", -1, answer());

        if (!open_control())
                return;
        (void) put_frame(UINT32_MAX, AGENT_READY, 0);
        (void) send_data(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT, 100);
        say("endless", -1, answer());
}

/* More than it was given credit for, which it never learns, since it takes no packets meanwhile. */
static void attack_no_credit(void) {
        if (!open_vsock(1))
                return;
        (void) send_op(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT, OP_REQUEST, 0);
        (void) put_frame(AGENT_FRAME_MAX, AGENT_READY, 0);
        for (unsigned i = 0; i < 4; i++)
                (void) send_data(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT, 32768);
        say("opening", -1, op_name(receive().op));
        say("behind", -1, answer());
}

/* Many. All packets lie ready, one for each entry of the ring, and what comes back is only counted: the device uses
 * the buffers in the order in which they were offered. */

static Packet *burst_packet(unsigned i) {
        return (Packet *) (data[TX_PAGE] + i * 64);
}

static bool open_burst(void) {
        if (!open_vsock(RX_BUFFERS))
                return false;
        for (unsigned i = 0; i < TX_PACKETS; i++) {
                r.rings[QUEUE_TX].desc[i] = (Desc) { .addr = (uint64_t) burst_packet(i), .len = sizeof(Packet) };
                r.rings[QUEUE_TX].avail[2 + i] = (uint16_t) i;
        }
        return true;
}

static uint16_t count_answers(void) {
        Ring *rx = &r.rings[QUEUE_RX];
        uint16_t n = (uint16_t) (rx->used[1] - rx->last_used);

        if (n > 0) {
                rx->last_used = (uint16_t) (rx->last_used + n);
                rx->avail[1] = (uint16_t) (rx->avail[1] + n);
                ring_kick(rx);
        }
        return n;
}

/* All of them once, and waits until they are taken. False: the device has stopped, or hangs. */
static bool send_burst(uint64_t *answers) {
        Ring *tx = &r.rings[QUEUE_TX];

        tx->avail[1] = (uint16_t) (tx->avail[1] + TX_PACKETS);
        ring_kick(tx);
        for (uint64_t end = 0; tx->used[1] != tx->avail[1] && clock_patient(&end);)
                *answers += count_answers();
        return tx->used[1] == tx->avail[1];
}

/* n of them, from a port of its own each. */
static void connections(const char *what, uint32_t n, uint32_t dst_port) {
        uint64_t answers = 0;

        if (!open_burst())
                return;
        for (unsigned i = 0; i < TX_PACKETS; i++)
                *burst_packet(i) = packet(0, dst_port, OP_REQUEST);
        for (uint32_t done = 0; done < n; done += TX_PACKETS) {
                for (unsigned i = 0; i < TX_PACKETS; i++)
                        burst_packet(i)->src_port = done + i;
                if (!send_burst(&answers)) {
                        say_number(what, "stuck after", done);
                        return;
                }
        }
        for (uint64_t end = 0; answers < n && clock_patient(&end);)
                answers += count_answers();
        say_number(what, "answers", answers);
}

static void attack_connections(void) {
        connections("control", 49984, AGENT_CONTROL_PORT);
        connections("elsewhere", 50048, NOBODY);
}

/* A control stream that says it is ready, breaks, is there again... */
static void attack_reconnects(void) {
        const uint32_t rounds = 20000, per_burst = TX_PACKETS / 4;
        const uint32_t bytes = put_frame(16, AGENT_READY, 0);
        uint64_t answers = 0;

        if (!open_burst())
                return;
        for (unsigned i = 0; i < TX_PACKETS; i += 4) {
                *burst_packet(i) = packet(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT, OP_REQUEST);
                *burst_packet(i + 1) = packet(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT, OP_RW);
                burst_packet(i + 1)->len = bytes;
                *burst_packet(i + 2) = packet(AGENT_CONTROL_GUEST_PORT_MAX, AGENT_CONTROL_PORT, OP_RST);
                *burst_packet(i + 3) = *burst_packet(i + 2);
                r.rings[QUEUE_TX].desc[i + 1] = (Desc) { .addr = (uint64_t) burst_packet(TX_PACKETS + i),
                                                         .len = sizeof(Packet) + bytes };
                memcpy(burst_packet(TX_PACKETS + i), burst_packet(i + 1), sizeof(Packet));
                memcpy(burst_packet(TX_PACKETS + i) + 1, data[PAYLOAD_PAGE], bytes);
        }
        for (uint32_t done = 0; done < rounds; done += per_burst)
                if (!send_burst(&answers)) {
                        say_number("reconnects", "stuck after", done);
                        return;
                }
        say_number("reconnects", "done", rounds);
}

/* Streams, which the host opens. Each of these waits for one. */

static bool accept_request(Packet *ret) {
        if (!open_vsock(RX_BUFFERS))
                return false;
        for (unsigned i = 0; i < 100; i++) {
                *ret = receive();
                if (ret->op == OP_REQUEST && ret->dst_port == AGENT_STREAM_PORT)
                        return true;
        }
        say("stream", -1, "was not opened");
        return false;
}

static bool accept_stream(uint32_t *ret_port, uint32_t buf_alloc, uint32_t fwd_cnt) {
        Packet request;

        if (!accept_request(&request))
                return false;
        Packet p = packet(AGENT_STREAM_PORT, request.src_port, OP_RESPONSE);
        p.buf_alloc = buf_alloc;
        p.fwd_cnt = fwd_cnt;
        *ret_port = request.src_port;
        return send(&p, 0) == OUTCOME_USED;
}

/* The first frame, which says yes. */
static void say_yes(uint32_t port) {
        (void) send_data(AGENT_STREAM_PORT, port, put_frame(0, AGENT_OK, 0));
}

static void attack_stream_early(void) {
        Packet request;

        if (!accept_request(&request))
                return;
        (void) send_data(AGENT_STREAM_PORT, request.src_port, put_frame(0, AGENT_OK, 0));
        say("stream", -1, answer());
}

static void attack_stream_long_answer(void) {
        uint32_t port;

        if (!accept_stream(&port, WINDOW, 0))
                return;
        (void) put_frame(1U << 20, AGENT_OK, 0);
        (void) send_data(AGENT_STREAM_PORT, port, 1000);
        /* The request's own frame comes before. */
        const char *a = answer();
        say("stream", -1, streq(a, "data") ? answer() : a);
}

/* Without end, to a client that does not read, whatever credit there is. */
static void attack_stream_overrun(void) {
        uint32_t port;

        if (!accept_stream(&port, WINDOW, 0))
                return;
        say_yes(port);
        for (unsigned i = 0; i < 1000; i++) {
                uint32_t head, len;

                if (send_data(AGENT_STREAM_PORT, port, 65536) != OUTCOME_USED)
                        break;
                while (ring_take(&r.rings[QUEUE_RX], &head, &len)) {
                        const Packet *p = (const Packet *) r.rings[QUEUE_RX].desc[head].addr;

                        if (p->op == OP_RST) {
                                say("stream", -1, "reset");
                                return;
                        }
                        ring_offer(&r.rings[QUEUE_RX], (uint16_t) head);
                }
                ring_kick(&r.rings[QUEUE_RX]);
        }
        say("stream", -1, "took everything");
}

static void attack_stream_half(void) {
        uint32_t port;

        if (!accept_stream(&port, WINDOW, 0))
                return;
        say_yes(port);
        (void) send_op(AGENT_STREAM_PORT, port, OP_SHUTDOWN, SHUTDOWN_SEND);
        (void) send_op(AGENT_STREAM_PORT, port, OP_SHUTDOWN, SHUTDOWN_SEND);
        /* It had said that there is no more. */
        (void) send_data(AGENT_STREAM_PORT, port, 100);
        const char *a = answer();
        say("stream", -1, streq(a, "data") ? answer() : a);
}

/* Room that it does not have, and numbers that run backwards, while the host sends a mebibyte. */
static void attack_stream_liar(void) {
        static const uint32_t allocs[] = { UINT32_MAX, 0, 1, 0x80000000, 12 };
        uint32_t port, packets = 0, seed = 99;

        if (!accept_stream(&port, UINT32_MAX, 0x80000000))
                return;
        say_yes(port);
        for (unsigned i = 0; i < 200; i++) {
                Packet p = packet(AGENT_STREAM_PORT, port, i & 1 ? OP_CREDIT_UPDATE : OP_CREDIT_REQUEST);

                p.buf_alloc = allocs[i % ELEMENTSOF(allocs)];
                p.fwd_cnt = random32(&seed);
                if (send(&p, 0) != OUTCOME_USED)
                        break;
                packets += count_answers();
        }
        say("stream", -1, packets > 0 ? "got packets" : "got nothing");
}

const Attack vsock_attacks[] = {
        { "packets", attack_packets },
        { "packet-frames", attack_packet_frames },
        { "half-closes", attack_half_closes },
        { "long-frames", attack_long_frames },
        { "no-credit", attack_no_credit },
        { "connections", attack_connections },
        { "reconnects", attack_reconnects },
        { "stream-early", attack_stream_early },
        { "stream-long-answer", attack_stream_long_answer },
        { "stream-overrun", attack_stream_overrun },
        { "stream-half", attack_stream_half },
        { "stream-liar", attack_stream_liar },
        {},
};
