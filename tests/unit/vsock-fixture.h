/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A guest made of these functions: it posts receive buffers, sends packets to a device of its own and looks at what comes. */

#include <endian.h>
#include <linux/virtio_ring.h>
#include <sys/socket.h>

#include "base/agent-proto.h"
#include "base/fd-util.h"
#include "tests/unit/fake-vm.h"
#include "tests/unit/test.h"
#include "tests/unit/virtio-driver.h"
#include "vmm/virtio-vsock.h"

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

_unused_ static void on_frame(void *userdata, const FrameHeader *h, const uint8_t *body) {
        control_frames++;
        control_last = *h;
        for (uint32_t i = 0; i < h->len; i++)
                control_sum = control_sum * 31 + body[i];
}

_unused_ static void on_lost(void *userdata) {
        control_lost++;
}

_unused_ static void on_answer(void *userdata, int error, const uint8_t *frame, size_t size) {
        answers++;
        answer_error = error;
        if (frame)
                frame_header_get(frame, &answer_header);
}

_unused_ static int on_nothing(LoopSource *s, int fd, uint32_t events, void *userdata) {
        return 0;
}

_unused_ static void on_device_error(void *userdata, const char *name, const char *message) {
        printf("# %s: %s\n", name, message);
}

_unused_ static void step(unsigned n) {
        stepper_run(&stepper, n);
}

_unused_ static void post_rx(unsigned i) {
        ring_desc(&driver.rings[RX], &vm.mem, i, RX_GPA + i * RX_BYTES, RX_BYTES, VRING_DESC_F_WRITE, 0);
        ring_offer(&driver.rings[RX], &vm.mem, i);
}

_unused_ static void device_up_with(unsigned rx_buffers, uint64_t features) {
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

_unused_ static void device_up(void) {
        device_up_with(RX_BUFFERS, 1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VIRTIO_RING_F_INDIRECT_DESC);
}

_unused_ static void device_down(void) {
        dev = virtio_vsock_free(dev);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

/* Sends one packet; data may be NULL. Waits until the device took it, or stopped at it. */
_unused_ static void put_packet(const struct virtio_vsock_hdr *h, const void *data, uint32_t len) {
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
                if (ring_take_used(&driver.rings[TX], &vm.mem, &head, &used) || virtio_vsock_pci(dev)->failed)
                        return;
        }
        assert_true(!"the device takes the packet");
}

_unused_ static struct virtio_vsock_hdr header(uint16_t op, uint32_t len, uint32_t flags) {
        return (struct virtio_vsock_hdr) {
                .src_cid = htole64(CID), .dst_cid = htole64(2),
                .src_port = htole32(guest_port), .dst_port = htole32(host_port),
                .len = htole32(len), .type = htole16(VIRTIO_VSOCK_TYPE_STREAM), .op = htole16(op),
                .flags = htole32(flags), .buf_alloc = htole32(GUEST_BUF_ALLOC), .fwd_cnt = htole32(consumed),
        };
}

_unused_ static void send_op(uint16_t op, uint32_t flags) {
        struct virtio_vsock_hdr h = header(op, 0, flags);
        put_packet(&h, NULL, 0);
}

_unused_ static void send_data(const void *data, uint32_t len) {
        struct virtio_vsock_hdr h = header(VIRTIO_VSOCK_OP_RW, len, 0);
        put_packet(&h, data, len);
        sent += len;
}

/* The next packet for the guest; its data is left at the returned place until the next call. */
_unused_ static const uint8_t *get_packet(struct virtio_vsock_hdr *ret) {
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

_unused_ static void expect_op(uint16_t op) {
        struct virtio_vsock_hdr h;

        assert_true(get_packet(&h));
        assert_eq(le16toh(h.op), op);
}

_unused_ static void expect_nothing(void) {
        struct virtio_vsock_hdr h;

        if (get_packet(&h))
                assert_eq(le16toh(h.op), -1);
}

/* Skips credit updates. */
_unused_ static uint16_t next_op(uint32_t *ret_flags) {
        struct virtio_vsock_hdr h;

        do {
                if (!get_packet(&h))
                        return 0;
        } while (le16toh(h.op) == VIRTIO_VSOCK_OP_CREDIT_UPDATE || le16toh(h.op) == VIRTIO_VSOCK_OP_CREDIT_REQUEST);
        if (ret_flags)
                *ret_flags = le32toh(h.flags);
        return le16toh(h.op);
}

_unused_ static size_t make_frame(uint8_t *buf, uint16_t type, uint32_t id, const void *body, uint32_t len) {
        FrameHeader h = { .len = len, .type = type, .id = id };

        frame_header_put(&h, buf);
        if (len > 0)
                memcpy(buf + FRAME_HEADER_SIZE, body, len);
        return FRAME_HEADER_SIZE + len;
}

_unused_ static void connect_control(void) {
        host_port = AGENT_CONTROL_PORT;
        guest_port = AGENT_CONTROL_GUEST_PORT_MAX;
        send_op(VIRTIO_VSOCK_OP_REQUEST, 0);
        expect_op(VIRTIO_VSOCK_OP_RESPONSE);
}

_unused_ static int request_stream(void) {
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
_unused_ static int open_stream(void) {
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
