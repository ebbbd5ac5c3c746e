/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/if_tun.h>

#include "make-net.h"
#include "vmm/snapshot-virtio.h"

/* The link */

static uint16_t link_status(void) {
        return (uint16_t) bar_get(virtio_net_pci(net), VIRTIO_BAR_DEVICE + 6, 2);
}

TEST(the_address_is_the_same_in_every_guest) {
        static const uint8_t mac[] = { 0x02, 0xcb, 0xff, 0x00, 0x00, 0x02 };

        make();
        for (unsigned i = 0; i < sizeof(mac); i++)
                assert_eq(bar_get(virtio_net_pci(net), VIRTIO_BAR_DEVICE + i, 1), mac[i]);
        assert_eq(link_status(), 1);
        assert_true(!(virtio_net_pci(net)->regs.device_features & (F(MTU) | F(CTRL_VQ) | F(HOST_UFO))));
        done();
}

TEST(without_a_tap_the_link_is_down) {
        uint8_t frame[100] = {};

        make_with(false, ALL_FEATURES);
        assert_eq(link_status(), 0);
        post(0, 1000);
        driver_kick(&driver, RX);
        offer_frame(0, &(struct virtio_net_hdr_v1) {}, frame, sizeof(frame));
        driver_kick(&driver, TX);
        expect_used(TX, 0, 0);
        assert_eq(counter("net-tx-dropped"), 1);
        assert_eq(errors, 0);
        assert_eq(virtio_net_tap_fd(net), -EBADF);
        done();
}

TEST(a_tap_that_goes_takes_the_link_down) {
        uint8_t frame[100] = {};
        unsigned before;

        make();
        post(0, 1000);
        before = fake_msi_count;
        wire = safe_close(wire);
        stepper_run(&stepper, 3);
        assert_eq(link_status(), 0);
        assert_eq(fake_msi_count, before + 1);
        assert_eq(errors, 1);
        assert_true(strstr(last_error, "the tap is gone"));
        assert_eq(virtio_net_tap_fd(net), -EBADF);
        offer_frame(0, &(struct virtio_net_hdr_v1) {}, frame, sizeof(frame));
        driver_kick(&driver, TX);
        expect_used(TX, 0, 0);
        done();
}

TEST(a_tap_that_goes_while_the_guest_is_paused_is_told_later) {
        unsigned before;

        make();
        virtio_net_pause(net);
        before = fake_msi_count;
        wire = safe_close(wire);
        stepper_run(&stepper, 3);
        assert_eq(link_status(), 0);
        assert_eq(fake_msi_count, before);
        virtio_net_resume(net);
        assert_eq(fake_msi_count, before + 1);
        done();
}

TEST(the_tap_gives_what_the_driver_can_take) {
        static const struct {
                uint64_t features;
                unsigned offload;
        } cases[] = {
                { ALL_FEATURES, TUN_F_CSUM|TUN_F_TSO4|TUN_F_TSO6 },
                { F(GUEST_CSUM) | F(GUEST_TSO6), TUN_F_CSUM|TUN_F_TSO6 },
                { F(GUEST_CSUM), TUN_F_CSUM },
                { F(GUEST_TSO4) | F(GUEST_TSO6), 0 },
                { F(CSUM) | F(HOST_TSO4), 0 },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                make_with(true, cases[i].features);
                assert_eq(fake_tap_offload, cases[i].offload);
                driver_reset(&driver);
                stepper_run(&stepper, 3);
                assert_eq(driver_status(&driver), 0);
                assert_eq(fake_tap_offload, 0);
                done();
        }
}

TEST(a_tap_that_takes_no_setting_is_given_up) {
        make();
        virtio_net_pause(net);
        fake_tap_result = -EBADFD;
        virtio_net_resume(net);
        assert_eq(link_status(), 0);
        assert_eq(virtio_net_tap_fd(net), -EBADF);
        assert_eq(errors, 1);
        done();
}

/* Snapshots */

static uint8_t *save(VirtioNet *n, size_t *ret_size) {
        static const uint8_t id[SNAPSHOT_ID_BYTES];
        _cleanup_snapshot_writer_ SnapshotWriter w = {};
        uint8_t *data;

        snapshot_virtio_save(virtio_net_pci(n), 6, &w);
        assert_ok(snapshot_writer_finish(&w, id, id, &data, ret_size));
        return data;
}

static void load(VirtioNet *n, const uint8_t *data, size_t size) {
        SnapshotReader reader;
        SnapshotFile f;
        VirtioLoad l;

        assert_ok(snapshot_file_parse(data, size, &f, NULL));
        assert_ok(snapshot_file_section(&f, SNAPSHOT_SECTION_VIRTIO, 6, &reader, NULL));
        assert_ok(snapshot_virtio_parse(virtio_net_pci(n), &reader, &l, NULL));
        for (unsigned i = 0; i < 2; i++)
                for (unsigned k = 0; k < ELEMENTSOF(l.state.queues[i].in_flight); k++)
                        assert_eq(l.state.queues[i].in_flight[k], 0);
        virtio_pci_pause(virtio_net_pci(n));
        virtio_net_forget(n);
        snapshot_virtio_apply(virtio_net_pci(n), &l);
}

TEST(a_paused_card_holds_nothing) {
        uint8_t frame[100] = {}, out[200];
        uint32_t head, len;

        make();
        for (uint16_t i = 0; i < 64; i++)
                post(i, 1000);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        expect_used(RX, 0, sizeof(frame));

        offer_frame(3, &(struct virtio_net_hdr_v1) {}, frame, sizeof(frame));
        driver_kick(&driver, TX);
        virtio_net_pause(net);
        /* What was asked for is done, and what comes waits in the tap. */
        assert_eq(on_wire(out, sizeof(out)), (ssize_t) (HEADER + sizeof(frame)));
        send_in(frame, 60);
        assert_true(used(TX, &head, &len));
        assert_true(!used(RX, &head, &len));
        for (unsigned i = 0; i < 2; i++) {
                const VirtQueue *ring = &virtio_net_pci(net)->queues[i].ring;
                assert_eq(ring->avail_next, ring->used_next);
        }

        fake_tap_offload = 0;
        virtio_net_resume(net);
        assert_eq(fake_tap_offload, TUN_F_CSUM|TUN_F_TSO4|TUN_F_TSO6);
        expect_used(RX, 1, 60);
        done();
}

TEST(a_card_goes_on_in_another) {
        _cleanup_free_ uint8_t *data = NULL, *again = NULL;
        uint8_t frame[100], out[200];
        size_t size, again_size;
        VirtioNet *first;

        make();
        fill(frame, sizeof(frame), 31);
        for (uint16_t i = 0; i < 4; i++)
                post(i, 1000);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        expect_used(RX, 0, sizeof(frame));
        virtio_net_pause(net);
        data = save(net, &size);

        first = net;
        int old_wire = wire;
        make_device(true, &net);
        load(net, data, size);
        again = save(net, &again_size);
        assert_true(size == again_size && memcmp(data, again, size) == 0);

        driver.device = virtio_net_pci(net);
        fake_tap_offload = 0;
        virtio_net_resume(net);
        assert_eq(fake_tap_offload, TUN_F_CSUM|TUN_F_TSO4|TUN_F_TSO6);
        send_in(frame, sizeof(frame));
        expect_used(RX, 1, sizeof(frame));
        offer_frame(3, &(struct virtio_net_hdr_v1) {}, frame, sizeof(frame));
        driver_kick(&driver, TX);
        expect_used(TX, 6, 0);
        assert_eq(on_wire(out, sizeof(out)), (ssize_t) (HEADER + sizeof(frame)));
        virtio_net_free(first);
        safe_close(old_wire);
        done();
}

TEST(a_template_without_a_network_gets_one) {
        _cleanup_free_ uint8_t *data = NULL;
        VirtioNet *first;
        size_t size;

        make_with(false, ALL_FEATURES);
        virtio_net_pause(net);
        data = save(net, &size);
        first = net;
        make_device(true, &net);
        load(net, data, size);
        virtio_net_resume(net);
        assert_eq(link_status(), 1);
        assert_true(virtio_net_pci(net)->isr & 2); /* 4.1.4.5: a change of the configuration */
        virtio_net_free(first);
        done();
}

TEST(a_card_that_is_held_hears_nothing_but_speaks) {
        uint8_t frame[100], out[200];
        uint32_t head, len;

        make();
        virtio_net_hold(net, true);
        post(0, 1000);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        assert_true(!used(RX, &head, &len));
        offer_frame(1, &(struct virtio_net_hdr_v1) {}, frame, 60);
        driver_kick(&driver, TX);
        expect_used(TX, 2, 0);
        assert_eq(on_wire(out, sizeof(out)), (ssize_t) HEADER + 60);

        /* A pause and more buffers are no reason to hear. */
        virtio_net_pause(net);
        virtio_net_resume(net);
        post(1, 1000);
        driver_kick(&driver, RX);
        assert_true(!used(RX, &head, &len));
        virtio_net_hold(net, false);
        expect_used(RX, 0, sizeof(frame));
        done();
}

TEST(a_frame_that_waited_is_no_part_of_a_snapshot) {
        _cleanup_free_ uint8_t *data = NULL;
        static uint8_t frame[5000];
        size_t size;

        make();
        virtio_net_pause(net);
        data = save(net, &size);
        virtio_net_resume(net);
        post(0, 1000);
        driver_kick(&driver, RX);
        send_in(frame, sizeof(frame));
        stepper_run(&stepper, 4);

        /* Rolled back: what waited is for a guest that is gone. */
        virtio_net_pause(net);
        load(net, data, size);
        virtio_net_resume(net);
        for (uint16_t i = 1; i < 8; i++)
                post(i, 1000);
        driver_kick(&driver, RX);
        send_in(frame, 60);
        expect_used(RX, 0, 60);
        done();
}
