/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_config.h>

#include "make-net.h"
#include "vmm/virtio-net-tx.h"

/* Sending */

TEST(a_frame_goes_out_behind_its_header) {
        struct virtio_net_hdr_v1 h = { .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .csum_start = 34, .csum_offset = 16 };
        uint8_t frame[1514], out[2048];

        make();
        fill(frame, sizeof(frame), 1);
        offer_frame(0, &h, frame, sizeof(frame));
        driver_kick(&driver, TX);
        expect_used(TX, 0, 0);
        assert_eq(on_wire(out, sizeof(out)), (ssize_t) (HEADER + sizeof(frame)));
        assert_eq(memcmp(out, &h, HEADER), 0);
        assert_eq(memcmp(out + HEADER, frame, sizeof(frame)), 0);
        assert_eq(counter("net-tx-packets"), 1);
        assert_eq(counter("net-tx-bytes"), sizeof(frame));
        assert_eq(errors, 0);
        done();
}

TEST(a_frame_may_lie_in_many_pieces_of_an_indirect_table) {
        struct virtio_net_hdr_v1 h = { .num_buffers = 77 };
        uint8_t frame[2000], out[2048];
        struct vring_desc table[200];

        make();
        fill(frame, sizeof(frame), 3);
        put(DATA_GPA, &h, HEADER);
        put(DATA_GPA + HEADER, frame, sizeof(frame));
        for (unsigned i = 0; i < 200; i++)
                table[i] = (struct vring_desc) {
                        .addr = DATA_GPA + i * 10, .len = i == 199 ? HEADER + 2000 - 1990 : 10,
                        .flags = i == 199 ? 0 : VRING_DESC_F_NEXT, .next = i + 1,
                };
        put(DATA_GPA + KIB(64), table, sizeof(table));
        ring_desc(&driver.rings[TX], &vm.mem, 0, DATA_GPA + KIB(64), sizeof(table), VRING_DESC_F_INDIRECT, 0);
        ring_offer(&driver.rings[TX], &vm.mem, 0);
        driver_kick(&driver, TX);
        expect_used(TX, 0, 0);
        assert_eq(on_wire(out, sizeof(out)), (ssize_t) (HEADER + sizeof(frame)));
        assert_eq(memcmp(out + HEADER, frame, sizeof(frame)), 0);
        /* A driver's num_buffers means nothing. */
        assert_eq(((struct virtio_net_hdr_v1 *) out)->num_buffers, 0);
        done();
}

#define CSUM VIRTIO_NET_HDR_F_NEEDS_CSUM
#define TCP4 VIRTIO_NET_HDR_GSO_TCPV4
#define TCP6 VIRTIO_NET_HDR_GSO_TCPV6

TEST(headers_that_can_be_true) {
        static const struct virtio_net_hdr_v1 good[] = {
                {},
                { .flags = CSUM, .csum_start = 34, .csum_offset = 16 },
                { .flags = CSUM, .csum_start = 14, .csum_offset = 0 },
                { .flags = CSUM, .csum_start = 34, .csum_offset = 3000 - 36 },
                { .flags = CSUM, .gso_type = TCP4, .hdr_len = 54, .gso_size = 1460, .csum_start = 34, .csum_offset = 16 },
                { .flags = CSUM, .gso_type = TCP6, .hdr_len = 3000, .gso_size = 48, .csum_start = 54, .csum_offset = 16 },
        };

        for (size_t i = 0; i < ELEMENTSOF(good); i++) {
                struct virtio_net_hdr_v1 h = good[i];

                assert_true(!net_header_check(&h, 3000, ALL_FEATURES));
                assert_eq(memcmp(&h, &good[i], sizeof(h)), 0);
        }
}

TEST(what_a_header_says_beside_the_point_is_cleared) {
        struct virtio_net_hdr_v1 h = { .flags = 0xfe, .hdr_len = 9999, .gso_size = 9, .csum_start = 5000,
                                       .csum_offset = 65535, .num_buffers = 3 };
        struct virtio_net_hdr_v1 zero = {};

        assert_true(!net_header_check(&h, 60, ALL_FEATURES));
        assert_eq(memcmp(&h, &zero, sizeof(h)), 0);
}

static const struct Lie {
        struct virtio_net_hdr_v1 header;
        const char *why;
        uint64_t lacking;
} lies[] = {
        { { .flags = CSUM, .csum_start = 34, .csum_offset = 16 }, "without the feature", F(CSUM) },
        { { .flags = CSUM, .csum_start = 13, .csum_offset = 16 }, "outside", 0 },
        { { .flags = CSUM, .csum_start = 65535, .csum_offset = 65535 }, "outside", 0 },
        { { .flags = CSUM, .csum_start = 34, .csum_offset = 2965 }, "outside", 0 },
        { { .gso_type = TCP4, .gso_size = 1460, .csum_start = 34, .csum_offset = 16 }, "TCP's checksum", 0 },
        { { .flags = CSUM, .gso_type = TCP4, .gso_size = 1460, .csum_start = 34, .csum_offset = 6 }, "TCP's checksum", 0 },
        { { .flags = CSUM, .gso_type = TCP4, .gso_size = 1460, .csum_start = 34, .csum_offset = 16 }, "without the feature",
          F(HOST_TSO4) },
        { { .flags = CSUM, .gso_type = TCP6, .gso_size = 1440, .csum_start = 54, .csum_offset = 16 }, "without the feature",
          F(HOST_TSO6) },
        { { .flags = CSUM, .gso_type = VIRTIO_NET_HDR_GSO_UDP, .gso_size = 1460, .csum_start = 34, .csum_offset = 16 },
          "unknown kind", 0 },
        { { .flags = CSUM, .gso_type = TCP4 | VIRTIO_NET_HDR_GSO_ECN, .gso_size = 1460, .csum_start = 34,
            .csum_offset = 16 }, "unknown kind", 0 },
        { { .gso_type = 0xff }, "unknown kind", 0 },
        { { .flags = CSUM, .gso_type = TCP4, .gso_size = 0, .csum_start = 34, .csum_offset = 16 }, "too small", 0 },
        { { .flags = CSUM, .gso_type = TCP4, .gso_size = 1, .csum_start = 34, .csum_offset = 16 }, "too small", 0 },
        { { .flags = CSUM, .gso_type = TCP4, .gso_size = 1460, .csum_start = 2981, .csum_offset = 16 }, "longer", 0 },
        { { .flags = CSUM, .gso_type = TCP4, .gso_size = 1460, .hdr_len = 3001, .csum_start = 34, .csum_offset = 16 },
          "longer", 0 },
};

TEST(lies_in_headers_are_found) {
        for (size_t i = 0; i < ELEMENTSOF(lies); i++) {
                struct virtio_net_hdr_v1 h = lies[i].header;
                const char *why = net_header_check(&h, 3000, ALL_FEATURES & ~lies[i].lacking);

                if (!why || !strstr(why, lies[i].why))
                        test_stop(TEST_FAILED, __LINE__, "lie %zu: %s", i, why ?: "believed");
        }
}

TEST(a_lie_costs_the_frame_and_nothing_else) {
        static uint8_t frame[3000], out[4096];

        make();
        fill(frame, sizeof(frame), 9);
        for (uint16_t i = 0; i < ELEMENTSOF(lies); i++)
                if (!lies[i].lacking)
                        offer_frame(i, &lies[i].header, frame, sizeof(frame));
        offer_frame(40, &(struct virtio_net_hdr_v1) {}, frame, sizeof(frame));
        driver_kick(&driver, TX);
        for (uint16_t i = 0; i < ELEMENTSOF(lies); i++)
                if (!lies[i].lacking)
                        expect_used(TX, 2 * i, 0);
        expect_used(TX, 80, 0);
        assert_eq(on_wire(out, sizeof(out)), (ssize_t) (HEADER + sizeof(frame)));
        assert_eq(on_wire(out, sizeof(out)), -EAGAIN);
        assert_eq(counter("net-tx-dropped"), 12);
        assert_eq(counter("net-tx-packets"), 1);
        assert_eq(errors, 1); /* in ten seconds */
        assert_true(strstr(last_error, "a frame of the guest's was dropped"));
        assert_eq(driver_status(&driver), 15);
        done();
}

TEST(frames_too_short_or_too_long_are_dropped) {
        static const uint32_t sizes[] = { 0, 1, 11, 12, 25, NET_FRAME_MAX + 1, MIB(1) };
        uint8_t out[64];

        make();
        for (uint16_t i = 0; i < ELEMENTSOF(sizes); i++) {
                ring_desc(&driver.rings[TX], &vm.mem, i, DATA_GPA, sizes[i], 0, 0);
                ring_offer(&driver.rings[TX], &vm.mem, i);
        }
        /* Only places to write to. */
        ring_desc(&driver.rings[TX], &vm.mem, 20, DATA_GPA, 100, VRING_DESC_F_WRITE, 0);
        ring_offer(&driver.rings[TX], &vm.mem, 20);
        driver_kick(&driver, TX);
        for (uint16_t i = 0; i < ELEMENTSOF(sizes); i++)
                expect_used(TX, i, 0);
        expect_used(TX, 20, 0);
        assert_eq(on_wire(out, sizeof(out)), -EAGAIN);
        assert_eq(counter("net-tx-dropped"), ELEMENTSOF(sizes) + 1);
        assert_eq(driver_status(&driver), 15);

        /* The smallest and the largest that are frames. */
        ring_desc(&driver.rings[TX], &vm.mem, 0, DATA_GPA, HEADER + 14, 0, 0);
        ring_offer(&driver.rings[TX], &vm.mem, 0);
        ring_desc(&driver.rings[TX], &vm.mem, 1, DATA_GPA, NET_FRAME_MAX, 0, 0);
        ring_offer(&driver.rings[TX], &vm.mem, 1);
        driver_kick(&driver, TX);
        expect_used(TX, 0, 0);
        expect_used(TX, 1, 0);
        assert_eq(on_wire(out, sizeof(out)), (ssize_t) HEADER + 14);
        assert_eq(counter("net-tx-packets"), 2);
        done();
}

TEST(chains_that_break_the_rules_stop_the_card) {
        make();
        ring_desc(&driver.rings[TX], &vm.mem, 0, DATA_GPA, MIB(1) + 1, 0, 0);
        ring_offer(&driver.rings[TX], &vm.mem, 0);
        driver_kick(&driver, TX);
        stepper_run(&stepper, 3);
        assert_true(driver_status(&driver) & VIRTIO_CONFIG_S_NEEDS_RESET);
        assert_eq(errors, 1);
        driver_reset(&driver);
        stepper_run(&stepper, 3);
        assert_eq(driver_status(&driver), 0);
        assert_eq(fake_tap_offload, 0);
        done();
}

TEST(a_full_tap_is_waited_for) {
        static uint8_t frame[60000], out[65536];
        uint32_t head, len;
        unsigned n = 0;

        make();
        for (uint16_t i = 0; i < 40; i++) {
                fill(frame, 16, (uint8_t) i);
                offer_frame(i, &(struct virtio_net_hdr_v1) {}, frame, sizeof(frame));
        }
        driver_kick(&driver, TX);
        while (used(TX, &head, &len))
                n++;
        assert_true(n > 0 && n < 40);

        for (unsigned i = 0; i < 40; i++) {
                fill(frame, 16, (uint8_t) i);
                for (unsigned k = 0; k < 6 && on_wire(out, sizeof(out)) < 0; k++)
                        stepper_run(&stepper, 1);
                assert_eq(memcmp(out + HEADER, frame, 16), 0);
        }
        while (used(TX, &head, &len))
                n++;
        assert_eq(n, 40);
        assert_eq(counter("net-tx-dropped"), 0);
        assert_eq(errors, 0);
        done();
}

/* Receiving */

static uint16_t buffers_said(uint16_t i) {
        struct virtio_net_hdr_v1 h;

        get(DATA_GPA + i * KIB(8), &h, sizeof(h));
        return h.num_buffers;
}

TEST(a_frame_comes_in) {
        uint8_t frame[100], seen[100];

        make();
        fill(frame, sizeof(frame), 5);
        post(7, 1500);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        expect_used(RX, 7, sizeof(frame));
        get(DATA_GPA + 7 * KIB(8), seen, sizeof(seen));
        assert_eq(memcmp(seen + HEADER, frame + HEADER, sizeof(frame) - HEADER), 0);
        assert_eq(buffers_said(7), 1);
        assert_eq(counter("net-rx-packets"), 1);
        assert_eq(counter("net-rx-bytes"), sizeof(frame) - HEADER);
        done();
}

/* Into n buffers of so many bytes, from buffer first on. */
static void expect_merged(uint16_t first, unsigned n, uint32_t each, const uint8_t *frame, size_t size) {
        static uint8_t seen[NET_FRAME_MAX];
        uint32_t head, len;
        size_t at = 0;

        for (unsigned i = 0; i < n; i++) {
                assert_true(used(RX, &head, &len));
                assert_eq(head, first + i);
                assert_eq(len, MIN(each, size - at));
                get(DATA_GPA + head * KIB(8), seen + at, len);
                at += len;
        }
        assert_eq(at, size);
        assert_eq(memcmp(seen + HEADER, frame + HEADER, size - HEADER), 0);
        assert_eq(buffers_said(first), n);
}

TEST(a_long_frame_lies_in_many_buffers) {
        static uint8_t frame[NET_FRAME_MAX];

        make();
        fill(frame, sizeof(frame), 11);
        for (uint16_t i = 0; i < 150; i++)
                post(i, 1000);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        send_in(frame, 200);
        send_in(frame, 2000);
        send_in(frame, 64000);
        expect_merged(0, 66, 1000, frame, sizeof(frame));
        expect_merged(66, 1, 1000, frame, 200);
        expect_merged(67, 2, 1000, frame, 2000);
        expect_merged(69, 64, 1000, frame, 64000);
        assert_eq(counter("net-rx-dropped"), 0);
        done();
}

TEST(a_buffer_may_be_in_pieces) {
        static uint8_t frame[5000], seen[5000];
        struct vring_desc table[250];

        make();
        fill(frame, sizeof(frame), 13);
        for (unsigned i = 0; i < 250; i++)
                table[i] = (struct vring_desc) {
                        .addr = DATA_GPA + i * 20, .len = 20,
                        .flags = VRING_DESC_F_WRITE | (i == 249 ? 0 : VRING_DESC_F_NEXT), .next = i + 1,
                };
        put(DATA_GPA + KIB(64), table, sizeof(table));
        ring_desc(&driver.rings[RX], &vm.mem, 0, DATA_GPA + KIB(64), sizeof(table), VRING_DESC_F_INDIRECT, 0);
        ring_offer(&driver.rings[RX], &vm.mem, 0);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        expect_used(RX, 0, sizeof(frame));
        get(DATA_GPA, seen, sizeof(seen));
        assert_eq(memcmp(seen + HEADER, frame + HEADER, sizeof(frame) - HEADER), 0);
        done();
}

TEST(without_buffers_frames_stay_in_the_tap) {
        uint8_t frame[100], out[200];
        uint32_t head, len;

        make();
        fill(frame, sizeof(frame), 17);
        send_in(frame, sizeof(frame));
        assert_true(!used(RX, &head, &len));
        assert_eq(recv(virtio_net_tap_fd(net), out, sizeof(out), MSG_PEEK), sizeof(frame));
        post(0, 1000);
        driver_kick(&driver, RX);
        expect_used(RX, 0, sizeof(frame));
        done();
}

TEST(a_frame_waits_for_enough_buffers) {
        static uint8_t frame[10000];
        uint32_t head, len;

        make();
        fill(frame, sizeof(frame), 19);
        for (uint16_t i = 0; i < 4; i++)
                post(i, 2000);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        send_in(frame, 60);
        assert_true(!used(RX, &head, &len));
        post(4, 2000);
        driver_kick(&driver, RX);
        expect_merged(0, 5, 2000, frame, sizeof(frame));
        post(5, 2000);
        driver_kick(&driver, RX);
        expect_merged(5, 1, 2000, frame, 60);
        assert_eq(counter("net-rx-dropped"), 0);
        done();
}

TEST(a_frame_that_no_ring_could_hold_is_dropped) {
        static uint8_t frame[60000];

        make();
        fill(frame, sizeof(frame), 23);
        for (uint16_t i = 0; i < 256; i++)
                post(i, 64);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        send_in(frame, 60);
        expect_merged(0, 1, 64, frame, 60);
        assert_eq(counter("net-rx-dropped"), 1);
        done();
}

TEST(without_merging_a_frame_has_one_buffer) {
        static uint8_t frame[5000];

        make_with(true, ALL_FEATURES & ~F(MRG_RXBUF));
        fill(frame, sizeof(frame), 29);
        for (uint16_t i = 0; i < 8; i++)
                post(i, 1526);
        driver_kick(&driver, RX);
        send_in(frame, 1526);
        send_in(frame, 1527);
        send_in(frame, 500);
        expect_merged(0, 1, 1526, frame, 1526);
        expect_merged(1, 1, 1526, frame, 500);
        assert_eq(counter("net-rx-dropped"), 1);
        done();
}

TEST(what_comes_out_of_a_tap_is_checked_too) {
        static uint8_t frame[NET_FRAME_MAX + 100];

        make();
        for (uint16_t i = 0; i < 200; i++)
                post(i, 2000);
        driver_kick(&driver, RX);
        send_in(frame, HEADER + 13);
        send_in(frame, NET_FRAME_MAX + 100);
        send_in(frame, 100);
        expect_merged(0, 1, 2000, frame, 100);
        assert_eq(counter("net-rx-dropped"), 2);
        done();
}

static void send_with(uint8_t flags, uint8_t gso_type, uint8_t seed) {
        struct virtio_net_hdr_v1 h = { .flags = flags, .gso_type = gso_type };
        uint8_t frame[100];

        fill(frame, sizeof(frame), seed);
        memcpy(frame, &h, HEADER);
        assert_eq(send(wire, frame, sizeof(frame), 0), (ssize_t) sizeof(frame));
}

TEST(what_the_driver_can_not_take_is_dropped) {
        static const struct {
                uint64_t lacking;
                uint32_t buffer; /* straight into it, or by way of ours */
        } cases[] = {
                { F(GUEST_CSUM), 2000 }, { F(GUEST_CSUM), 200 },
                { F(GUEST_TSO4), 2000 }, { F(GUEST_TSO4), 200 },
                { F(GUEST_TSO6), 2000 }, { F(GUEST_TSO6), 200 },
                { 0, 2000 }, { 0, 200 },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                uint64_t lacking = cases[i].lacking;
                struct virtio_net_hdr_v1 h;

                make_with(true, ALL_FEATURES & ~lacking);
                for (uint16_t k = 0; k < 100; k++)
                        post(k, cases[i].buffer);
                driver_kick(&driver, RX);
                if (lacking == F(GUEST_CSUM))
                        send_with(CSUM, 0, 1);
                else if (lacking == F(GUEST_TSO4))
                        send_with(CSUM, TCP4, 1);
                else if (lacking == F(GUEST_TSO6))
                        send_with(CSUM, TCP6, 1);
                else
                        send_with(CSUM, VIRTIO_NET_HDR_GSO_UDP, 1);
                send_with(VIRTIO_NET_HDR_F_DATA_VALID, 0, 2);
                expect_used(RX, 0, 100);
                get(DATA_GPA, &h, sizeof(h));
                assert_eq(h.flags, lacking == F(GUEST_CSUM) ? 0 : VIRTIO_NET_HDR_F_DATA_VALID);
                assert_eq(counter("net-rx-dropped"), 1);
                done();
        }
}

TEST(a_buffer_without_a_place_for_the_header_stops_the_card) {
        uint8_t frame[100] = {};

        make();
        post(0, HEADER - 1);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        stepper_run(&stepper, 4);
        assert_true(driver_status(&driver) & VIRTIO_CONFIG_S_NEEDS_RESET);
        done();
}

TEST(no_more_than_a_visit_at_once) {
        uint8_t frame[100] = {};
        uint16_t idx;

        make();
        for (uint16_t i = 0; i < 256; i++)
                post(i, 1000);
        driver_kick(&driver, RX);
        for (unsigned i = 0; i < 100; i++)
                send_in(frame, sizeof(frame));
        stepper_run(&stepper, 1);
        assert_ok(guest_mem_load_u16(&vm.mem, driver.rings[RX].used_gpa + 2, &idx));
        assert_true(idx <= VIRTIO_VISIT_CHAINS);
        stepper_run(&stepper, 4);
        assert_ok(guest_mem_load_u16(&vm.mem, driver.rings[RX].used_gpa + 2, &idx));
        assert_eq(idx, 100);
        done();
}
