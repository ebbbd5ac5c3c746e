/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A network card with a driver in front and a socket in place of the tap behind it: what the tests of it share. */

#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <sys/socket.h>

#include "fake-tap.h"
#include "fake-vm.h"
#include "test.h"
#include "virtio-driver.h"
#include "vmm/virtio-net.h"

#define RINGS_GPA 0x10000U
#define DATA_GPA 0x100000U
#define RX 0U
#define TX 1U
#define HEADER sizeof(struct virtio_net_hdr_v1)
#define F(name) (1ULL << VIRTIO_NET_F_##name)
#define ALL_FEATURES                                                                                             \
        (F(CSUM) | F(GUEST_CSUM) | F(HOST_TSO4) | F(HOST_TSO6) | F(GUEST_TSO4) | F(GUEST_TSO6) | F(MRG_RXBUF) | \
         F(STATUS) | F(MAC) | 1ULL << VIRTIO_RING_F_EVENT_IDX | 1ULL << VIRTIO_RING_F_INDIRECT_DESC)

static Vm vm;
static Stepper stepper;
static VirtioNet *net;
static Driver driver;
static int wire = -EBADF; /* the network's end of the tap */
static unsigned errors;
static char last_error[200];

static inline void on_error(void *userdata, const char *name, const char *message) {
        errors++;
        (void) snprintf(last_error, sizeof(last_error), "%s", message);
}

static inline void make_device(bool with_tap, VirtioNet **ret) {
        int fds[2] = { -EBADF, -EBADF };

        if (with_tap)
                assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_NONBLOCK|SOCK_CLOEXEC, 0, fds));
        wire = fds[1];
        assert_ok(virtio_net_new(&vm, stepper.loop, 0xc0600000, fds[0], on_error, NULL, ret));
}

static inline void make_with(bool with_tap, uint64_t features) {
        errors = 0;
        fake_tap_offload = 0;
        fake_tap_result = 0;
        fake_vm_init(&vm, MIB(8));
        stepper_init(&stepper);
        make_device(with_tap, &net);
        driver_prepare(&driver, virtio_net_pci(net), &vm.mem, RINGS_GPA, features);
        driver_ok(&driver);
        stepper_run(&stepper, 2);
}

static inline void make(void) {
        make_with(true, ALL_FEATURES);
}

static inline void done(void) {
        net = virtio_net_free(net);
        wire = safe_close(wire);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

static inline void count(void *userdata, const char *name, uint64_t value) {
        const char *wanted = ((void **) userdata)[0];

        if (streq(name, wanted))
                *(uint64_t *) ((void **) userdata)[1] = value;
}

static inline uint64_t counter(const char *name) {
        uint64_t value = UINT64_MAX;
        void *wanted[] = { (void *) name, &value };

        virtio_net_counters(net, count, wanted);
        return value;
}

static inline void put(uint64_t gpa, const void *data, size_t size) {
        assert_ok(guest_mem_write(&vm.mem, gpa, data, size));
}

static inline void get(uint64_t gpa, void *data, size_t size) {
        assert_ok(guest_mem_read(&vm.mem, gpa, data, size));
}

static inline void fill(uint8_t *data, size_t size, uint8_t seed) {
        for (size_t i = 0; i < size; i++)
                data[i] = (uint8_t) (seed + i * 7 + i / 251);
}

static inline bool used(unsigned queue, uint32_t *ret_head, uint32_t *ret_len) {
        for (unsigned i = 0; i < 6; i++) {
                if (ring_take_used(&driver.rings[queue], &vm.mem, ret_head, ret_len))
                        return true;
                stepper_run(&stepper, 1);
        }
        return false;
}

static inline void offer_frame(uint16_t i, const struct virtio_net_hdr_v1 *h, const void *frame, uint32_t size) {
        uint64_t gpa = DATA_GPA + i * KIB(128);

        put(gpa, h, HEADER);
        put(gpa + HEADER, frame, size);
        ring_desc(&driver.rings[TX], &vm.mem, 2 * i, gpa, HEADER, VRING_DESC_F_NEXT, 2 * i + 1);
        ring_desc(&driver.rings[TX], &vm.mem, 2 * i + 1, gpa + HEADER, size, 0, 0);
        ring_offer(&driver.rings[TX], &vm.mem, 2 * i);
}

static inline void expect_used(unsigned queue, uint32_t head, uint32_t len) {
        uint32_t h, l;

        assert_true(used(queue, &h, &l));
        assert_eq(h, head);
        assert_eq(l, len);
}

static inline ssize_t on_wire(void *data, size_t size) {
        ssize_t n = recv(wire, data, size, 0);
        return n < 0 ? -errno : n;
}

static inline void post(uint16_t i, uint32_t size) {
        ring_desc(&driver.rings[RX], &vm.mem, i, DATA_GPA + i * KIB(8), size, VRING_DESC_F_WRITE, 0);
        ring_offer(&driver.rings[RX], &vm.mem, i);
}

static inline void send_in(uint8_t *frame, size_t size) {
        /* A header that any driver takes. */
        memset(frame, 0, HEADER);
        assert_eq(send(wire, frame, size, 0), (ssize_t) size);
}
