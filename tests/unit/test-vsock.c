/* SPDX-License-Identifier: Apache-2.0 */

/* Streams and the control stream of the vsock device, from their beginning to each way that they end. */

#include "tests/unit/vsock-fixture.h"

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

/* Else one that connects, says something and leaves, again and again, would be heard however slow cubed is. */
TEST(no_control_stream_is_let_in_while_held) {
        device_up();
        connect_control();
        virtio_vsock_control_hold(dev, true);
        send_op(VIRTIO_VSOCK_OP_RST, 0);
        assert_eq(control_lost, 1);
        for (unsigned i = 0; i < 3; i++) {
                send_op(VIRTIO_VSOCK_OP_REQUEST, 0);
                expect_op(VIRTIO_VSOCK_OP_RST);
        }
        assert_eq(control_lost, 1);

        virtio_vsock_control_hold(dev, false);
        connect_control();
        device_down();
}

/* Nothing moves any more once the device has said so. */
TEST(a_packet_that_breaks_the_rules_is_not_given_back) {
        struct virtio_vsock_hdr h;
        uint32_t head, used;

        for (unsigned i = 0; i < 3; i++) {
                device_up();
                h = header(VIRTIO_VSOCK_OP_RW, i == 0 ? 1 : VSOCK_PACKET_BYTES_MAX + 1, 0);
                assert_ok(guest_mem_write(&vm.mem, TX_GPA, &h, sizeof(h)));
                ring_desc(&driver.rings[TX], &vm.mem, 0, TX_GPA, i == 2 ? sizeof(h) - 1 : sizeof(h), 0, 0);
                ring_offer(&driver.rings[TX], &vm.mem, 0);
                driver_kick(&driver, TX);
                step(4);
                assert_true(virtio_vsock_pci(dev)->failed);
                assert_true(!ring_take_used(&driver.rings[TX], &vm.mem, &head, &used));
                device_down();
        }
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
