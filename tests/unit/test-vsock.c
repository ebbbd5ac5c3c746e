/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <linux/virtio_ring.h>
#include <sys/socket.h>

#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "fake-vm.h"
#include "test.h"
#include "virtio-driver.h"
#include "vmm/virtio-vsock.h"

/* A guest made of this file: it posts receive buffers, sends packets and looks at what comes. */

#define CID 3U
#define RX 0
#define TX 1
#define RINGS_GPA 0x10000U
#define RX_GPA 0x100000U
#define TX_GPA 0x800000U
#define RX_BUFFERS 64U
#define RX_BYTES KIB(8)
#define TX_BYTES (KIB(64) + 64)
#define GUEST_BUF_ALLOC KIB(256)
#define GUEST_PORT 5000U

static Vm vm;
static Stepper stepper;
static VirtioVsock *dev;
static Driver driver;

/* What the guest keeps for the one connection that most tests use. */
static uint32_t host_port, guest_port, peer_fwd_cnt, sent, consumed;
static unsigned rx_head_max;

static unsigned control_frames, control_lost;
static FrameHeader control_last;
static uint32_t control_sum;
static unsigned answers;
static int answer_error;
static FrameHeader answer_header;

static void on_frame(void *userdata, const FrameHeader *h, const uint8_t *body) {
        control_frames++;
        control_last = *h;
        for (uint32_t i = 0; i < h->len; i++)
                control_sum = control_sum * 31 + body[i];
}

static void on_lost(void *userdata) {
        control_lost++;
}

static void on_answer(void *userdata, int error, const uint8_t *frame, size_t size) {
        answers++;
        answer_error = error;
        if (frame)
                frame_header_get(frame, &answer_header);
}

static int on_nothing(LoopSource *s, int fd, uint32_t events, void *userdata) {
        return 0;
}

static void on_device_error(void *userdata, const char *name, const char *message) {
        printf("# %s: %s\n", name, message);
}

static void step(unsigned n) {
        stepper_run(&stepper, n);
}

static void post_rx(unsigned i) {
        ring_desc(&driver.rings[RX], &vm.mem, i, RX_GPA + i * RX_BYTES, RX_BYTES, VRING_DESC_F_WRITE, 0);
        ring_offer(&driver.rings[RX], &vm.mem, i);
}

static void device_up_with(unsigned rx_buffers, uint64_t features) {
        VsockControlEvents events = { .on_frame = on_frame, .on_lost = on_lost };

        control_frames = control_lost = control_sum = answers = 0;
        answer_error = 1;
        host_port = guest_port = peer_fwd_cnt = sent = consumed = 0;
        rx_head_max = rx_buffers;

        fake_vm_init(&vm, MIB(16));
        stepper_init(&stepper);
        assert_ok(virtio_vsock_new(&vm, stepper.loop, 0xc0100000, CID, &events, on_device_error, NULL, &dev));
        driver_prepare(&driver, virtio_vsock_pci(dev), &vm.mem, RINGS_GPA, features);
        for (unsigned i = 0; i < rx_buffers; i++)
                post_rx(i);
        driver_ok(&driver);
        step(4);
}

static void device_up(void) {
        device_up_with(RX_BUFFERS, 1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VIRTIO_RING_F_INDIRECT_DESC);
}

static void device_down(void) {
        dev = virtio_vsock_free(dev);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

/* Sends one packet; data may be NULL. Waits until the device took it. */
static void put_packet(const struct virtio_vsock_hdr *h, const void *data, uint32_t len) {
        uint32_t head, used;

        assert_ok(guest_mem_write(&vm.mem, TX_GPA, h, sizeof(*h)));
        if (len > 0)
                assert_ok(guest_mem_write(&vm.mem, TX_GPA + sizeof(*h), data, len));
        /* Two parts, cut in the middle of the header. */
        ring_desc(&driver.rings[TX], &vm.mem, 0, TX_GPA, 20, VRING_DESC_F_NEXT, 1);
        ring_desc(&driver.rings[TX], &vm.mem, 1, TX_GPA + 20, sizeof(*h) - 20 + len, 0, 0);
        ring_offer(&driver.rings[TX], &vm.mem, 0);
        driver_kick(&driver, TX);
        for (unsigned i = 0; i < 100; i++) {
                step(1);
                if (ring_take_used(&driver.rings[TX], &vm.mem, &head, &used))
                        return;
        }
        assert_true(!"the device takes the packet");
}

static struct virtio_vsock_hdr header(uint16_t op, uint32_t len, uint32_t flags) {
        return (struct virtio_vsock_hdr) {
                .src_cid = htole64(CID), .dst_cid = htole64(2),
                .src_port = htole32(guest_port), .dst_port = htole32(host_port),
                .len = htole32(len), .type = htole16(VIRTIO_VSOCK_TYPE_STREAM), .op = htole16(op),
                .flags = htole32(flags), .buf_alloc = htole32(GUEST_BUF_ALLOC), .fwd_cnt = htole32(consumed),
        };
}

static void send_op(uint16_t op, uint32_t flags) {
        struct virtio_vsock_hdr h = header(op, 0, flags);
        put_packet(&h, NULL, 0);
}

static void send_data(const void *data, uint32_t len) {
        struct virtio_vsock_hdr h = header(VIRTIO_VSOCK_OP_RW, len, 0);
        put_packet(&h, data, len);
        sent += len;
}

/* The next packet for the guest; its data is left at the returned place until the next call. */
static const uint8_t *get_packet(struct virtio_vsock_hdr *ret) {
        static uint8_t data[RX_BYTES];
        uint32_t head, used;

        for (unsigned i = 0; i < 20; i++) {
                if (ring_take_used(&driver.rings[RX], &vm.mem, &head, &used)) {
                        assert_true(used >= sizeof(*ret));
                        assert_ok(guest_mem_read(&vm.mem, RX_GPA + head * RX_BYTES, ret, sizeof(*ret)));
                        assert_eq(used, sizeof(*ret) + le32toh(ret->len));
                        assert_ok(guest_mem_read(&vm.mem, RX_GPA + head * RX_BYTES + sizeof(*ret), data, used - sizeof(*ret)));
                        post_rx(head);
                        driver_kick(&driver, RX);
                        assert_eq(le64toh(ret->src_cid), 2);
                        assert_eq(le64toh(ret->dst_cid), CID);
                        peer_fwd_cnt = le32toh(ret->fwd_cnt);
                        return data;
                }
                step(1);
        }
        return NULL;
}

static void expect_op(uint16_t op) {
        struct virtio_vsock_hdr h;

        assert_true(get_packet(&h));
        assert_eq(le16toh(h.op), op);
}

static void expect_nothing(void) {
        struct virtio_vsock_hdr h;

        if (get_packet(&h))
                assert_eq(le16toh(h.op), -1);
}

/* Skips credit updates. */
static uint16_t next_op(uint32_t *ret_flags) {
        struct virtio_vsock_hdr h;

        do {
                if (!get_packet(&h))
                        return 0;
        } while (le16toh(h.op) == VIRTIO_VSOCK_OP_CREDIT_UPDATE || le16toh(h.op) == VIRTIO_VSOCK_OP_CREDIT_REQUEST);
        if (ret_flags)
                *ret_flags = le32toh(h.flags);
        return le16toh(h.op);
}

static size_t make_frame(uint8_t *buf, uint16_t type, uint32_t id, const void *body, uint32_t len) {
        FrameHeader h = { .len = len, .type = type, .id = id };

        frame_header_put(&h, buf);
        if (len > 0)
                memcpy(buf + FRAME_HEADER_SIZE, body, len);
        return FRAME_HEADER_SIZE + len;
}

static void connect_control(void) {
        host_port = AGENT_CONTROL_PORT;
        guest_port = AGENT_CONTROL_GUEST_PORT_MAX;
        send_op(VIRTIO_VSOCK_OP_REQUEST, 0);
        expect_op(VIRTIO_VSOCK_OP_RESPONSE);
}

static int request_stream(void) {
        struct virtio_vsock_hdr h;
        uint8_t frame[64];
        int pair[2];

        /* What an earlier stream left behind. */
        while (get_packet(&h))
                ;
        assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair));
        size_t n = make_frame(frame, AGENT_STREAM_PROCESS, 7, "hello", 5);
        assert_ok(virtio_vsock_stream_open(dev, pair[0], frame, n, on_answer, NULL));
        assert_ok(fd_set_nonblock(pair[1], true));

        assert_true(get_packet(&h));
        assert_eq(le16toh(h.op), VIRTIO_VSOCK_OP_REQUEST);
        assert_eq(le32toh(h.dst_port), AGENT_STREAM_PORT);
        host_port = le32toh(h.src_port);
        guest_port = AGENT_STREAM_PORT;
        return pair[1];
}

/* A stream that the agent has said OK to. */
static int open_stream(void) {
        struct virtio_vsock_hdr h;
        const uint8_t *data;
        uint8_t frame[64];

        int fd = request_stream();
        send_op(VIRTIO_VSOCK_OP_RESPONSE, 0);
        data = get_packet(&h);
        assert_true(data);
        assert_eq(le16toh(h.op), VIRTIO_VSOCK_OP_RW);
        assert_eq(le32toh(h.len), FRAME_HEADER_SIZE + 5);
        assert_eq(memcmp(data + FRAME_HEADER_SIZE, "hello", 5), 0);
        consumed += le32toh(h.len);

        answers = 0;
        send_data(frame, make_frame(frame, AGENT_OK, 7, NULL, 0));
        assert_eq(answers, 1);
        assert_eq(answer_error, 0);
        assert_eq(answer_header.type, AGENT_OK);
        return fd;
}

TEST(control_stream) {
        uint8_t frame[256];
        struct virtio_vsock_hdr h;

        device_up();
        assert_eq(virtio_vsock_control_send(dev, frame, 12), -ENOTCONN);

        /* Not from a port that any program in the guest can have. */
        host_port = AGENT_CONTROL_PORT;
        guest_port = AGENT_CONTROL_GUEST_PORT_MAX + 1;
        send_op(VIRTIO_VSOCK_OP_REQUEST, 0);
        expect_op(VIRTIO_VSOCK_OP_RST);
        connect_control();

        /* A frame in three packets, then two frames in one. */
        size_t n = make_frame(frame, AGENT_READY, 0, "0123456789", 10);
        send_data(frame, 5);
        send_data(frame + 5, 10);
        assert_eq(control_frames, 0);
        send_data(frame + 15, n - 15);
        assert_eq(control_frames, 1);
        assert_eq(control_last.type, AGENT_READY);
        n = make_frame(frame, AGENT_OK, 1, NULL, 0);
        n += make_frame(frame + n, AGENT_OK, 2, "x", 1);
        send_data(frame, n);
        assert_eq(control_frames, 3);
        assert_eq(control_last.id, 2);

        n = make_frame(frame, AGENT_PING, 9, "ping", 4);
        assert_ok(virtio_vsock_control_send(dev, frame, n));
        const uint8_t *data = get_packet(&h);
        assert_true(data);
        assert_eq(le32toh(h.len), n);
        assert_eq(memcmp(data, frame, n), 0);

        /* One control stream at a time. */
        guest_port = AGENT_CONTROL_GUEST_PORT_MAX - 1;
        send_op(VIRTIO_VSOCK_OP_REQUEST, 0);
        expect_op(VIRTIO_VSOCK_OP_RST);
        assert_eq(control_lost, 0);

        guest_port = AGENT_CONTROL_GUEST_PORT_MAX;
        send_op(VIRTIO_VSOCK_OP_SHUTDOWN, 3);
        assert_eq(control_lost, 1);
        expect_op(VIRTIO_VSOCK_OP_RST);
        connect_control();
        send_op(VIRTIO_VSOCK_OP_RST, 0);
        assert_eq(control_lost, 2);
        device_down();
}

TEST(control_queue_has_a_ceiling) {
        static uint8_t frame[KIB(64)];
        struct virtio_vsock_hdr h;
        uint64_t queued = 0, got = 0;
        int r;

        device_up();
        connect_control();
        (void) make_frame(frame, AGENT_PING, 1, NULL, 0);
        while ((r = virtio_vsock_control_send(dev, frame, sizeof(frame))) >= 0)
                queued += sizeof(frame);
        assert_eq(r, -EAGAIN);
        assert_true(queued >= VSOCK_QUEUE_BYTES_MAX);
        printf("# %llu KiB queued\n", (unsigned long long) queued >> 10);

        /* The guest reads at last: all comes, and never more than it has room for. */
        while (get_packet(&h)) {
                if (le16toh(h.op) != VIRTIO_VSOCK_OP_RW)
                        continue;
                got += le32toh(h.len);
                assert_true((uint32_t) got - consumed <= GUEST_BUF_ALLOC);
                if (got - consumed > GUEST_BUF_ALLOC / 2) {
                        consumed = got;
                        send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
                }
        }
        assert_eq(got, queued);
        device_down();
}

/* While cubed is slow the agent gets no more than it had credit for, and goes on afterwards. */
TEST(control_stream_held) {
        static uint8_t frame[KIB(16)];

        device_up();
        connect_control();
        static const uint8_t body[sizeof(frame) - FRAME_HEADER_SIZE];
        (void) make_frame(frame, AGENT_OK, 1, body, sizeof(body));
        send_data(frame, sizeof(frame));
        expect_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
        assert_eq(peer_fwd_cnt, sent);

        virtio_vsock_control_hold(dev, true);
        for (unsigned i = 0; i < 4; i++)
                send_data(frame, sizeof(frame));
        expect_nothing();
        assert_eq(control_frames, 5);
        send_op(VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0);
        expect_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
        assert_eq(sent - peer_fwd_cnt, VSOCK_BUFFER_BYTES);

        virtio_vsock_control_hold(dev, false);
        expect_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE);
        assert_eq(peer_fwd_cnt, sent);

        /* Who sends on regardless is cut off. */
        virtio_vsock_control_hold(dev, true);
        for (unsigned i = 0; i < 4; i++)
                send_data(frame, sizeof(frame));
        send_data(frame, 1);
        assert_eq(control_lost, 1);
        expect_op(VIRTIO_VSOCK_OP_RST);
        device_down();
}

TEST(control_frame_too_long) {
        uint8_t frame[FRAME_HEADER_SIZE];
        FrameHeader h = { .len = AGENT_FRAME_MAX + 1, .type = AGENT_OK };

        device_up();
        connect_control();
        frame_header_put(&h, frame);
        send_data(frame, sizeof(frame));
        assert_eq(control_lost, 1);
        expect_op(VIRTIO_VSOCK_OP_RST);
        device_down();
}

TEST(only_the_control_port_answers) {
        device_up();
        guest_port = GUEST_PORT;
        for (unsigned port = 1; port < 5000; port += 111) {
                host_port = port;
                send_op(VIRTIO_VSOCK_OP_REQUEST, 0);
                expect_op(VIRTIO_VSOCK_OP_RST);
        }
        /* No answer to a RST, nor to somebody else's packets. */
        send_op(VIRTIO_VSOCK_OP_RST, 0);
        expect_nothing();
        struct virtio_vsock_hdr h = header(VIRTIO_VSOCK_OP_REQUEST, 0, 0);
        h.dst_port = htole32(AGENT_CONTROL_PORT);
        h.src_cid = htole64(4);
        put_packet(&h, NULL, 0);
        expect_nothing();
        h.src_cid = htole64(CID);
        h.dst_cid = htole64(1);
        put_packet(&h, NULL, 0);
        expect_nothing();
        /* Not a stream. */
        h.dst_cid = htole64(2);
        h.type = htole16(2);
        put_packet(&h, NULL, 0);
        expect_op(VIRTIO_VSOCK_OP_RST);
        device_down();
}

TEST(stream_both_ways) {
        struct virtio_vsock_hdr h;
        char buf[64];

        device_up();
        int fd = open_stream();
        send_data("from guest", 10);
        assert_eq(read(fd, buf, sizeof(buf)), 10);
        assert_eq(memcmp(buf, "from guest", 10), 0);

        assert_eq(write(fd, "from host", 9), 9);
        const uint8_t *data = get_packet(&h);
        assert_true(data);
        assert_eq(le32toh(h.len), 9);
        assert_eq(memcmp(data, "from host", 9), 0);
        safe_close(fd);
        device_down();
}

TEST(answer_and_data_in_one_packet) {
        uint8_t buf[64];

        device_up();
        int fd = request_stream();
        send_op(VIRTIO_VSOCK_OP_RESPONSE, 0);
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_RW);
        size_t n = make_frame(buf, AGENT_OK, 7, "abc", 3);
        memcpy(buf + n, "DATA", 4);
        send_data(buf, n + 4);
        assert_eq(answers, 1);
        assert_eq(answer_header.len, 3);
        assert_eq(read(fd, buf, sizeof(buf)), 4);
        assert_eq(memcmp(buf, "DATA", 4), 0);
        safe_close(fd);
        device_down();
}

TEST(host_bytes_wait_for_the_answer) {
        uint8_t frame[64];
        struct virtio_vsock_hdr h;

        device_up();
        int fd = request_stream();
        assert_eq(write(fd, "early", 5), 5);
        send_op(VIRTIO_VSOCK_OP_RESPONSE, 0);
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_RW);
        expect_nothing();
        send_data(frame, make_frame(frame, AGENT_OK, 7, NULL, 0));
        assert_true(get_packet(&h));
        assert_eq(le32toh(h.len), 5);
        safe_close(fd);
        device_down();
}

TEST(stream_refused) {
        uint8_t frame[64], c;

        device_up();
        int fd = request_stream();
        send_op(VIRTIO_VSOCK_OP_RST, 0);
        assert_eq(answer_error, -ECONNREFUSED);
        assert_eq(read(fd, &c, 1), 0);
        safe_close(fd);

        fd = request_stream();
        send_op(VIRTIO_VSOCK_OP_RESPONSE, 0);
        send_op(VIRTIO_VSOCK_OP_RST, 0);
        assert_eq(answer_error, -ECONNRESET);
        safe_close(fd);

        /* The agent's own refusal is an answer; then the connection ends. */
        answers = 0;
        fd = request_stream();
        send_op(VIRTIO_VSOCK_OP_RESPONSE, 0);
        send_data(frame, make_frame(frame, AGENT_ERROR, 7, "no", 2));
        assert_eq(answers, 1);
        assert_eq(answer_error, 0);
        assert_eq(answer_header.type, AGENT_ERROR);
        assert_eq(read(fd, &c, 1), 0);
        safe_close(fd);

        /* Not even a frame. */
        fd = request_stream();
        send_op(VIRTIO_VSOCK_OP_RESPONSE, 0);
        memset(frame, 0xff, sizeof(frame));
        send_data(frame, sizeof(frame));
        assert_eq(answer_error, -EBADMSG);
        safe_close(fd);
        device_down();
}

TEST(nothing_comes_in_time) {
        int pair[2];
        char c;

        device_up();
        assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair));
        VsockConn *conn = vsock_conn_new_stream(stepper.loop, on_nothing, pair[0], 1, 2, on_answer, NULL);
        assert_true(conn);
        assert_true(conn->deadline_usec > 0);
        vsock_conn_on_deadline(conn);
        assert_eq(answer_error, -ETIMEDOUT);
        assert_true(conn->reset_owed);
        assert_eq(conn->state, VSOCK_DEAD);
        assert_eq(read(pair[1], &c, 1), 0);
        vsock_conn_free(conn);
        safe_close(pair[1]);
        device_down();
}

TEST(half_close_by_host) {
        uint32_t flags = 0;
        char buf[16];

        device_up();
        int fd = open_stream();
        assert_eq(write(fd, "last", 4), 4);
        assert_ok(shutdown(fd, SHUT_WR));
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_RW);
        assert_eq(next_op(&flags), VIRTIO_VSOCK_OP_SHUTDOWN);
        assert_eq(flags, VIRTIO_VSOCK_SHUTDOWN_SEND);
        /* The other direction lives. */
        send_data("still", 5);
        assert_eq(read(fd, buf, sizeof(buf)), 5);
        send_op(VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND);
        assert_eq(read(fd, buf, sizeof(buf)), 0);
        send_op(VIRTIO_VSOCK_OP_SHUTDOWN, 3);
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_RST);
        safe_close(fd);
        device_down();
}

TEST(half_close_by_guest) {
        char buf[16];

        device_up();
        int fd = open_stream();
        send_data("bye", 3);
        send_op(VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND);
        assert_eq(read(fd, buf, sizeof(buf)), 3);
        assert_eq(read(fd, buf, sizeof(buf)), 0);
        assert_eq(write(fd, "more", 4), 4);
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_RW);
        send_op(VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_RCV);
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_RST);
        assert_eq(send(fd, "x", 1, MSG_NOSIGNAL), -1);
        assert_eq(errno, EPIPE);
        safe_close(fd);
        device_down();
}

TEST(guest_refuses_to_receive) {
        device_up();
        int fd = open_stream();
        send_op(VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_RCV);
        assert_eq(send(fd, "x", 1, MSG_NOSIGNAL), -1);
        assert_eq(errno, EPIPE);
        char buf[8];
        send_data("ok", 2);
        assert_eq(read(fd, buf, sizeof(buf)), 2);
        safe_close(fd);
        device_down();
}

TEST(host_goes_away) {
        uint32_t flags = 0;

        device_up();
        int fd = open_stream();
        assert_eq(write(fd, "last", 4), 4);
        safe_close(fd);
        uint16_t op = next_op(&flags);
        uint32_t seen = 0;
        bool data = false;
        while (op != 0) {
                if (op == VIRTIO_VSOCK_OP_RW)
                        data = true;
                else if (op == VIRTIO_VSOCK_OP_SHUTDOWN)
                        seen |= flags;
                op = next_op(&flags);
        }
        assert_true(data);
        assert_eq(seen, 3);
        /* It writes on before it notices: thrown away, no reset, credit goes on. */
        static uint8_t zeros[KIB(60)];
        for (unsigned i = 0; i < 10; i++) {
                send_data(zeros, sizeof(zeros));
                while (next_op(NULL))
                        ;
        }
        send_op(VIRTIO_VSOCK_OP_RST, 0);
        device_down();
}

/* Everything the guest sent before it closed arrives, however late it is read. */
TEST(close_loses_nothing) {
        static uint8_t data[KIB(60)], back[KIB(400)];
        size_t total = 0, got = 0;
        ssize_t n;

        device_up();
        int fd = open_stream();
        int small = 4096;
        assert_ok(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)));
        for (size_t i = 0; i < sizeof(data); i++)
                data[i] = (uint8_t) (i * 7);
        while (sent - peer_fwd_cnt + sizeof(data) <= VSOCK_BUFFER_BYTES) {
                send_data(data, sizeof(data));
                total += sizeof(data);
                while (next_op(NULL))
                        ;
        }
        printf("# %zu KiB without a reader\n", total >> 10);
        send_op(VIRTIO_VSOCK_OP_SHUTDOWN, 3);
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_RST);
        for (unsigned idle = 0; idle < 50;) {
                n = read(fd, back + got, sizeof(back) - got);
                if (n > 0)
                        got += n;
                else if (n == 0)
                        break;
                else
                        idle++;
                step(1);
        }
        assert_eq(got, total);
        for (size_t i = 0; i < got; i++)
                if (back[i] != data[i % sizeof(data)])
                        assert_eq(i, -1);
        assert_eq(read(fd, back, 1), 0);
        safe_close(fd);
        device_down();
}

TEST(credit_violation) {
        static uint8_t data[KIB(64)];
        unsigned packets = 0;

        device_up();
        int fd = open_stream();
        uint16_t op = 0;
        /* Nobody reads; the guest sends on without looking at its credit. */
        while (packets++ < 100 && (op = next_op(NULL)) != VIRTIO_VSOCK_OP_RST)
                send_data(data, sizeof(data));
        assert_eq(op, VIRTIO_VSOCK_OP_RST);
        printf("# reset after %u packets\n", packets);
        safe_close(fd);
        device_down();
}

TEST(data_behind_shutdown) {
        device_up();
        int fd = open_stream();
        send_op(VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND);
        send_data("x", 1);
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_RST);
        safe_close(fd);
        device_down();
}

TEST(unknown_operation) {
        device_up();
        int fd = open_stream();
        send_op(99, 0);
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_RST);
        safe_close(fd);
        device_down();
}

TEST(malformed_packets_stop_the_device) {
        device_up();
        connect_control();
        struct virtio_vsock_hdr h = header(VIRTIO_VSOCK_OP_RW, KIB(64) + 1, 0);
        put_packet(&h, NULL, 0);
        step(4);
        assert_true(driver_status(&driver) & 0x40);
        assert_eq(control_lost, 1);
        driver_reset(&driver);
        step(4);
        assert_eq(driver_status(&driver), 0);
        device_down();

        device_up();
        h = header(VIRTIO_VSOCK_OP_RW, 1, 0);
        put_packet(&h, NULL, 0);
        assert_true(driver_status(&driver) & 0x40);
        device_down();

        /* A receive buffer that holds nothing but a header. */
        device_up_with(0, 0);
        ring_desc(&driver.rings[RX], &vm.mem, 0, RX_GPA, 44, VRING_DESC_F_WRITE, 0);
        ring_offer(&driver.rings[RX], &vm.mem, 0);
        guest_port = host_port = 1;
        send_op(VIRTIO_VSOCK_OP_REQUEST, 0);
        step(4);
        assert_true(driver_status(&driver) & 0x40);
        device_down();
}

/* Headers of noise around a live connection: the device may reset it or stop, and nothing else. */
TEST(noise) {
        static uint8_t data[KIB(4)];
        struct virtio_vsock_hdr h;
        unsigned seed = 3, stopped = 0;

        for (unsigned round = 0; round < 200; round++) {
                device_up();
                int fd = open_stream();
                for (unsigned i = 0; i < 200 && !(driver_status(&driver) & 0x40); i++) {
                        seed = seed * 1103515245 + 12345;
                        unsigned r = seed >> 8;
                        h = header(r % 10, r & 16 ? r >> 12 & 0xfff : 0, r >> 5 & 3);
                        if (r & 32)
                                h.dst_port = htole32(r & 64 ? AGENT_CONTROL_PORT : r);
                        if (r & 128)
                                h.buf_alloc = htole32(seed);
                        if (r & 256)
                                h.fwd_cnt = htole32(seed * 7);
                        if ((r & 0xfe00) == 0x1200)
                                h.len = htole32(seed);
                        put_packet(&h, data, MIN(le32toh(h.len), sizeof(data)));
                        if (r & 1)
                                (void) !send(fd, data, 100, MSG_NOSIGNAL|MSG_DONTWAIT);
                        if (r & 2)
                                (void) !read(fd, data, sizeof(data));
                        while (get_packet(&h) && !(r & 4))
                                ;
                }
                stopped += !!(driver_status(&driver) & 0x40);
                safe_close(fd);
                device_down();
        }
        printf("# stopped in %u of 200 rounds\n", stopped);
}

/* Unread RSTs must not pile up, and no packet may be lost for it. */
TEST(flood_of_requests) {
        struct virtio_vsock_hdr h;
        unsigned n = 0, resets = 0;
        uint32_t head, used;

        device_up_with(0, 1ULL << VIRTIO_RING_F_EVENT_IDX);
        guest_port = GUEST_PORT;
        for (unsigned i = 0; i < 100; i++) {
                h = header(VIRTIO_VSOCK_OP_REQUEST, 0, 0);
                h.dst_port = htole32(2000 + i);
                assert_ok(guest_mem_write(&vm.mem, TX_GPA + i * 64, &h, sizeof(h)));
                ring_desc(&driver.rings[TX], &vm.mem, i, TX_GPA + i * 64, sizeof(h), 0, 0);
                ring_offer(&driver.rings[TX], &vm.mem, i);
        }
        driver_kick(&driver, TX);
        step(50);
        while (ring_take_used(&driver.rings[TX], &vm.mem, &head, &used))
                n++;
        assert_eq(n, 64);

        for (unsigned i = 0; i < RX_BUFFERS; i++)
                post_rx(i);
        driver_kick(&driver, RX);
        while (get_packet(&h)) {
                assert_eq(le16toh(h.op), VIRTIO_VSOCK_OP_RST);
                resets++;
        }
        assert_eq(resets, 100);
        device_down();
}

TEST(table_is_bounded) {
        uint8_t frame[FRAME_HEADER_SIZE];
        static int fds[VSOCK_CONNECTIONS_MAX];
        int pair[2];

        device_up();
        (void) make_frame(frame, AGENT_STREAM_WAIT, 1, NULL, 0);
        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++) {
                assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair));
                assert_ok(virtio_vsock_stream_open(dev, pair[0], frame, sizeof(frame), on_answer, NULL));
                fds[i] = pair[1];
        }
        assert_ok(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, pair));
        assert_eq(virtio_vsock_stream_open(dev, pair[0], frame, sizeof(frame), on_answer, NULL), -EMFILE);
        char c;
        assert_eq(read(pair[1], &c, 1), 0);
        safe_close(pair[1]);

        /* The guest's reset answers all of them. */
        driver_reset(&driver);
        step(4);
        assert_eq(driver_status(&driver), 0);
        assert_eq(answers, VSOCK_CONNECTIONS_MAX);
        assert_eq(answer_error, -ECONNRESET);
        for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++) {
                assert_eq(read(fds[i], &c, 1), 0);
                safe_close(fds[i]);
        }
        device_down();
}

/* Bytes of a long stream, comparable in one go: no period of a buffer's or a packet's size. */
#define PATTERN_PERIOD 65521U

static const uint8_t *pattern(uint64_t offset) {
        static uint8_t table[PATTERN_PERIOD + KIB(256)];

        if (table[1] == 0)
                for (size_t i = 0; i < sizeof(table); i++) {
                        uint32_t x = (uint32_t) (i % PATTERN_PERIOD) * 2654435761U;
                        table[i] = (uint8_t) (x >> 13 ^ x >> 24) | (i == 1);
                }
        return table + offset % PATTERN_PERIOD;
}

#define BULK_BYTES (200U * 1000 * 1000)

TEST(bulk_to_host_with_slow_reader) {
        static uint8_t back[KIB(256)];
        uint64_t to_send = BULK_BYTES, offset = 0, got = 0;
        unsigned round = 0;
        struct virtio_vsock_hdr h;

        device_up();
        int fd = open_stream();
        while (got < BULK_BYTES) {
                uint32_t room = VSOCK_BUFFER_BYTES - (sent - peer_fwd_cnt);
                uint32_t n = MIN((uint64_t) room, to_send);
                if (n > 0) {
                        send_data(pattern(offset), n);
                        offset += n;
                        to_send -= n;
                } else
                        step(1);

                /* Reads every third time, odd amounts. */
                if (round++ % 3 == 0 || n == 0) {
                        ssize_t k = read(fd, back, 1 + (round * 7919) % sizeof(back));
                        if (k > 0) {
                                assert_eq(memcmp(back, pattern(got), k), 0);
                                got += k;
                        }
                }
                while (room < KIB(64) && get_packet(&h)) {
                        assert_eq(le16toh(h.op), VIRTIO_VSOCK_OP_CREDIT_UPDATE);
                        room = VSOCK_BUFFER_BYTES - (sent - peer_fwd_cnt);
                        if (room > KIB(16))
                                break;
                }
        }
        assert_eq(got, BULK_BYTES);
        assert_eq(to_send, 0);
        safe_close(fd);
        device_down();
}

TEST(bulk_to_guest_with_slow_guest) {
        uint64_t offset = 0, got = 0;
        struct virtio_vsock_hdr h;
        uint32_t base;

        device_up();
        int fd = open_stream();
        base = consumed;
        while (got < BULK_BYTES) {
                size_t n = MIN(KIB(256), BULK_BYTES - offset);
                if (n > 0) {
                        ssize_t k = write(fd, pattern(offset), n);
                        if (k > 0)
                                offset += k;
                        if (offset == BULK_BYTES)
                                assert_ok(shutdown(fd, SHUT_WR));
                }

                const uint8_t *p = get_packet(&h);
                if (!p || le16toh(h.op) != VIRTIO_VSOCK_OP_RW)
                        continue;
                assert_eq(memcmp(p, pattern(got), le32toh(h.len)), 0);
                got += le32toh(h.len);
                /* Never more than it has room for; it frees its buffer seldom. */
                assert_true((uint32_t) got + base - consumed <= GUEST_BUF_ALLOC);
                if ((uint32_t) got + base - consumed > GUEST_BUF_ALLOC - KIB(20)) {
                        consumed = base + got;
                        send_op(VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
                }
        }
        assert_eq(next_op(NULL), VIRTIO_VSOCK_OP_SHUTDOWN);
        safe_close(fd);
        device_down();
}

/* A client that closes while the guest has no room must not make the loop spin. */
TEST(hangup_without_room_is_quiet) {
        static uint8_t data[KIB(64)];
        struct virtio_vsock_hdr h;

        device_up();
        int fd = open_stream();
        while (write(fd, data, sizeof(data)) > 0)
                while (get_packet(&h))
                        ;
        safe_close(fd);
        step(10);
        uint64_t before = driver.device->n_chains;
        step(1000);
        assert_true(driver.device->n_chains - before < 10);
        device_down();
}
