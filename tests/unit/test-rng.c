/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/virtio_ring.h>

#include "base/clock.h"
#include "fake-vm.h"
#include "test.h"
#include "virtio-driver.h"
#include "vmm/virtio-rng.h"

#define RINGS_GPA 0x10000U
#define DATA_GPA 0x100000U

static Vm vm;
static Stepper stepper;
static VirtioRng *rng;
static Driver driver;

static void make(void) {
        fake_vm_init(&vm, MIB(4));
        stepper_init(&stepper);
        assert_ok(virtio_rng_new(&vm, stepper.loop, 0xc0400000, NULL, NULL, &rng));
        driver_prepare(&driver, virtio_rng_pci(rng), &vm.mem, RINGS_GPA, 1ULL << VIRTIO_RING_F_EVENT_IDX);
        driver_ok(&driver);
        stepper_run(&stepper, 2);
}

static void done(void) {
        rng = virtio_rng_free(rng);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

static void ask(unsigned i, uint32_t len) {
        ring_desc(&driver.rings[0], &vm.mem, i, DATA_GPA, len, VRING_DESC_F_WRITE, 0);
        ring_offer(&driver.rings[0], &vm.mem, i);
        driver_kick(&driver, 0);
}

static bool answer(uint32_t *ret_len) {
        uint32_t head;

        for (unsigned i = 0; i < 5; i++) {
                if (ring_take_used(&driver.rings[0], &vm.mem, &head, ret_len))
                        return true;
                stepper_run(&stepper, 1);
        }
        return false;
}

TEST(gives_bytes) {
        uint8_t a[64], b[64];
        uint32_t len;

        make();
        ask(0, 64);
        assert_true(answer(&len));
        assert_eq(len, 64);
        assert_ok(guest_mem_read(&vm.mem, DATA_GPA, a, 64));
        ask(0, 64);
        assert_true(answer(&len));
        assert_ok(guest_mem_read(&vm.mem, DATA_GPA, b, 64));
        assert_true(memcmp(a, b, 64) != 0);
        assert_ok(guest_mem_read(&vm.mem, DATA_GPA + 64, b, 64));
        for (unsigned i = 0; i < 64; i++)
                assert_eq(b[i], 0);
        done();
}

TEST(a_request_is_bounded) {
        uint32_t len;

        make();
        ask(0, MIB(2));
        assert_true(answer(&len));
        assert_eq(len, RNG_REQUEST_BYTES_MAX);
        done();
}

/* All that comes without another wait, behind what there is. */
static uint64_t answers(uint64_t total) {
        uint32_t len;

        while (answer(&len))
                total += len;
        return total;
}

TEST(an_allowance_runs_out_and_comes_back) {
        uint64_t begin, first, second;
        uint32_t len;

        /* Where that took as long as an allowance takes to come back, nothing can be said of it. */
        for (;;) {
                make();
                for (unsigned i = 0; i < 10; i++)
                        ask(i, KIB(64));
                begin = now_usec();
                first = answers(0);
                if (now_usec() - begin < RNG_ALLOWANCE_USEC) {
                        for (begin = now_usec(); !answer(&len); begin = now_usec())
                                (void) usleep(USEC_PER_MSEC);
                        second = answers(len);
                        if (now_usec() - begin < RNG_ALLOWANCE_USEC)
                                break;
                }
                done();
        }
        assert_eq(first, RNG_ALLOWANCE_BYTES);
        assert_eq(second, RNG_ALLOWANCE_BYTES);
        done();
}

TEST(odd_chains) {
        uint32_t len;

        make();
        /* Only something to read, and nothing at all. */
        ring_desc(&driver.rings[0], &vm.mem, 0, DATA_GPA, 16, 0, 0);
        ring_offer(&driver.rings[0], &vm.mem, 0);
        driver_kick(&driver, 0);
        assert_true(answer(&len));
        assert_eq(len, 0);
        ask(1, 0);
        assert_true(answer(&len));
        assert_eq(len, 0);
        assert_eq(driver_status(&driver), 15);
        ring_desc(&driver.rings[0], &vm.mem, 0, UINT64_MAX, 16, VRING_DESC_F_WRITE, 0);
        ring_offer(&driver.rings[0], &vm.mem, 0);
        driver_kick(&driver, 0);
        assert_true(!answer(&len));
        assert_true(driver_status(&driver) & 0x40);
        done();
}
