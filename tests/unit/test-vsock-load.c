/* SPDX-License-Identifier: Apache-2.0 */

/* The vsock device under a guest or a client that breaks rules, sends nonsense, too much, or reads too slowly. */

#include "tests/unit/vsock-fixture.h"

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
