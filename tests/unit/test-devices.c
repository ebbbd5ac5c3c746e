/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>
#include <pthread.h>
#include <sys/mman.h>

#include "fake-vm.h"
#include "test.h"
#include "virtio-driver.h"
#include "vmm/devices-private.h"
#include "vmm/memmap.h"
#include "vmm/seccomp.h"

/* Accesses as a vCPU makes them. */

static Vm vm;
static Stepper stepper;
static Devices *devices;
static unsigned panics;

static void on_panic(void *userdata, uint8_t event) {
        panics += event;
}

static void make(void) {
        DeviceEvents events = { .on_panic = on_panic };
        DevicesConfig config = { .guest_cid = 3, .tap_fd = -EBADF };

        panics = 0;
        /* Once: it keeps what it made for as long as the program runs. */
        static bool prepared;
        if (!prepared)
                assert_ok(seccomp_prepare(NULL));
        prepared = true;
        fake_vm_init(&vm, MIB(4));
        fake_vm_add_plug(&vm, MIB(128));
        stepper_init(&stepper);
        for (unsigned i = 0; i < 2; i++) {
                int fd = memfd_create("base", MFD_CLOEXEC);
                assert_ok(ftruncate(fd, 65536));
                config.disks[i] = (DiskConfig) {
                        .present = true,
                        .read_only = i == 0,
                        .base_fd = fd,
                        .over.overlay_fd = i == 0 ? -EBADF : memfd_create("overlay", MFD_CLOEXEC),
                        .base_bytes = 65536,
                        .disk_bytes = 65536,
                };
        }
        assert_ok(devices_new(&vm, stepper.loop, &config, &events, &devices, NULL));
        assert_ok(devices_start(devices));
}

static void done(void) {
        devices = devices_free(devices);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

static uint64_t get(uint64_t gpa, unsigned len) {
        uint8_t data[8] = { 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a };
        uint64_t v = 0;

        devices_mmio(devices, gpa, data, len, false);
        memcpy(&v, data, len <= 8 ? len : 8);
        return v;
}

static void put(uint64_t gpa, unsigned len, uint64_t v) {
        uint8_t data[8];

        /* What is above len bytes must not matter. */
        memset(data, 0xff, sizeof(data));
        memcpy(data, &v, len <= 8 ? len : 8);
        devices_mmio(devices, gpa, data, len, true);
}

static uint64_t config_gpa(unsigned slot, unsigned offset) {
        return MEMMAP_ECAM + slot * 32768ULL + offset;
}

TEST(topology) {
        static const uint32_t ids[] = { 0x0d578086, 0x10531af4, 0x10421af4, 0x10421af4, 0x10441af4, 0x00111b36, 0x10411af4,
                                        0x10451af4, 0x10581af4 };

        make();
        for (unsigned slot = 0; slot < 32; slot++) {
                assert_eq(get(config_gpa(slot, 0), 4), slot < ELEMENTSOF(ids) ? ids[slot] : UINT32_MAX);
                for (unsigned function = 1; function < 8; function++)
                        assert_eq(get(config_gpa(slot, function * 4096), 4), UINT32_MAX);
                if (slot < ELEMENTSOF(ids))
                        assert_eq(get(config_gpa(slot, PCI_INTERRUPT_PIN), 1), 0);
        }
        done();
}

TEST(bars_do_not_overlap) {
        make();
        uint64_t last_end = MEMMAP_PCI_MMIO;
        for (unsigned slot = 1; slot < 9; slot++) {
                uint64_t bar = get(config_gpa(slot, PCI_BASE_ADDRESS_0), 4);
                put(config_gpa(slot, PCI_BASE_ADDRESS_0), 4, UINT32_MAX);
                uint32_t size = ~(uint32_t) get(config_gpa(slot, PCI_BASE_ADDRESS_0), 4) + 1;
                put(config_gpa(slot, PCI_BASE_ADDRESS_0), 4, bar);
                assert_true(bar >= last_end);
                assert_eq(bar % size, 0);
                last_end = bar + size;
        }
        assert_true(last_end <= MEMMAP_PCI_MMIO + MEMMAP_PCI_MMIO_SIZE);
        done();
}

TEST(memory_decoding_is_the_drivers_choice) {
        make();
        uint64_t bar = get(config_gpa(1, PCI_BASE_ADDRESS_0), 4);
        assert_eq(get(bar + 0x12, 2), 0xffff);
        put(config_gpa(1, PCI_COMMAND), 2, PCI_COMMAND_MEMORY);
        assert_eq(get(bar + 0x12, 2), 3);
        put(bar + 0x14, 1, 1);
        assert_eq(get(bar + 0x14, 1), 1);
        put(config_gpa(1, PCI_COMMAND), 2, 0);
        put(bar + 0x14, 1, 3);
        put(config_gpa(1, PCI_COMMAND), 2, PCI_COMMAND_MEMORY);
        assert_eq(get(bar + 0x14, 1), 1);
        done();
}

TEST(narrow_writes_have_nothing_above_them) {
        make();
        put(config_gpa(1, PCI_COMMAND), 2, PCI_COMMAND_MEMORY);
        uint64_t bar = get(config_gpa(1, PCI_BASE_ADDRESS_0), 4);
        put(bar + 0x16, 2, 1);
        assert_eq(get(bar + 0x16, 2), 1);
        put(bar + 0, 4, 1);
        assert_eq(get(bar + 4, 4), 1); /* VERSION_1, from the upper half of the features */
        done();
}

/* P15 */
TEST(strange_accesses_are_nothing) {
        static const unsigned lens[] = { 0, 3, 5, 6, 7, 9, 16, UINT32_MAX };

        make();
        put(config_gpa(1, PCI_COMMAND), 2, PCI_COMMAND_MEMORY);
        uint64_t bar = get(config_gpa(1, PCI_BASE_ADDRESS_0), 4);
        for (size_t i = 0; i < ELEMENTSOF(lens); i++) {
                uint8_t data[8] = {};
                devices_mmio(devices, bar, data, lens[i], false);
                assert_eq(data[0], 0xff);
                devices_mmio(devices, bar + 0x14, data, lens[i], true);
        }
        assert_eq(get(bar + 1, 2), 0xffff);
        assert_eq(get(bar + 2, 4), UINT32_MAX);
        assert_eq(get(config_gpa(1, 1), 2), 0xffff);
        assert_eq(get(config_gpa(1, 0), 8), UINT64_MAX);
        put(bar + 0x13, 2, 0x0101);
        assert_eq(get(bar + 0x14, 1), 0);

        /* Where nothing is: behind a BAR, between BARs, behind the windows, beside RAM. */
        static const uint64_t nowhere[] = {
                MEMMAP_PCI_MMIO, MEMMAP_PCI_MMIO + 0x108000, MEMMAP_PCI_MMIO + 0x1ffff8,
                MEMMAP_PCI_MMIO + MEMMAP_PCI_MMIO_SIZE - 8, MEMMAP_ECAM + MEMMAP_ECAM_SIZE,
                MEMMAP_ECAM + MEMMAP_ECAM_SIZE - 8, MEMMAP_LAPIC, 0, MIB(4), UINT64_MAX - 7, 1ULL << 52,
        };
        for (size_t i = 0; i < ELEMENTSOF(nowhere); i++) {
                for (unsigned len = 1; len <= 8; len *= 2) {
                        put(nowhere[i], len, 0);
                        assert_eq(get(nowhere[i], len), len == 8 ? UINT64_MAX : (1ULL << len * 8) - 1);
                }
        }
        done();
}

TEST(every_register_takes_everything) {
        make();
        for (unsigned slot = 0; slot < 6; slot++)
                put(config_gpa(slot, PCI_COMMAND), 2, PCI_COMMAND_MEMORY);
        for (unsigned slot = 1; slot < 6; slot++) {
                uint64_t bar = get(config_gpa(slot, PCI_BASE_ADDRESS_0), 4);
                for (unsigned at = 0; at < 0x8000; at++)
                        for (unsigned len = 1; len <= 8; len *= 2) {
                                put(bar + at, len, UINT64_MAX);
                                (void) get(bar + at, len);
                                put(bar + at, len, at * 0x9e3779b97f4a7c15ULL);
                        }
        }
        for (unsigned at = 0; at < 4096; at++)
                for (unsigned slot = 0; slot < 6; slot++)
                        put(config_gpa(slot, at), 1, 0xff);
        stepper_run(&stepper, 20);
        done();
}

TEST(panic_event) {
        make();
        uint64_t bar = get(config_gpa(5, PCI_BASE_ADDRESS_0), 4);
        put(bar, 1, 1);
        assert_eq(panics, 0);
        put(config_gpa(5, PCI_COMMAND), 2, PCI_COMMAND_MEMORY);
        assert_eq(get(bar, 1), 3);
        put(bar, 1, 0xfc);
        put(bar, 4, 1);
        put(bar + 1, 1, 1);
        assert_eq(panics, 0);
        put(bar, 1, 1);
        assert_eq(panics, 1);
        done();
}

/* The disks have a thread of their own, which may not have noticed yet that it was let go when it is to hold still
 * again: what was asked for in between must be done all the same. */
TEST(a_pause_right_behind_a_resume_is_a_whole_one) {
        const uint64_t common = MEMMAP_PCI_MMIO + MIB(2);

        make();
        put(config_gpa(2, PCI_COMMAND), 2, PCI_COMMAND_MEMORY);
        assert_ok(devices_pause(devices));
        for (unsigned i = 0; i < 300; i++) {
                put(common + VIRTIO_PCI_COMMON_STATUS, 1, 1);
                put(common + VIRTIO_PCI_COMMON_STATUS, 1, 3);
                put(common + VIRTIO_PCI_COMMON_GFSELECT, 4, 1);
                put(common + VIRTIO_PCI_COMMON_GF, 4, 1);
                put(common + VIRTIO_PCI_COMMON_STATUS, 1, 11);
                put(common + VIRTIO_PCI_COMMON_STATUS, 1, 15);
                assert_eq(get(common + VIRTIO_PCI_COMMON_STATUS, 1), 15);

                devices_resume(devices);
                put(common + VIRTIO_PCI_COMMON_STATUS, 1, 0);
                assert_ok(devices_pause(devices));
                assert_eq(get(common + VIRTIO_PCI_COMMON_STATUS, 1), 0);
        }
        devices_resume(devices);
        done();
}

/* The first flush lasts until the pause is asked for. */
static struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        unsigned n;
} flushes = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

int __wrap_overlay_flush(Overlay *o);
int __wrap_overlay_flush(Overlay *o) {
        pthread_mutex_lock(&flushes.lock);
        bool first = flushes.n++ == 0;
        pthread_cond_broadcast(&flushes.changed);
        pthread_mutex_unlock(&flushes.lock);

        pthread_mutex_lock(&devices->park_lock);
        while (first && !devices->park_wanted)
                pthread_cond_wait(&devices->park_changed, &devices->park_lock);
        pthread_mutex_unlock(&devices->park_lock);
        return 0;
}

static void wait_for_flushes(unsigned n) {
        pthread_mutex_lock(&flushes.lock);
        while (flushes.n < n)
                pthread_cond_wait(&flushes.changed, &flushes.lock);
        pthread_mutex_unlock(&flushes.lock);
}

#define FLUSHES 16U

static void offer_flushes(Driver *driver) {
        struct virtio_blk_outhdr h = { .type = htole32(VIRTIO_BLK_T_FLUSH) };

        assert_ok(guest_mem_write(&vm.mem, 0x100000, &h, sizeof(h)));
        for (unsigned i = 0; i < FLUSHES; i++) {
                ring_desc(&driver->rings[0], &vm.mem, (uint16_t) (2 * i), 0x100000, sizeof(h), VRING_DESC_F_NEXT, (uint16_t) (2 * i + 1));
                ring_desc(&driver->rings[0], &vm.mem, (uint16_t) (2 * i + 1), 0x110000, 1, VRING_DESC_F_WRITE, 0);
                ring_offer(&driver->rings[0], &vm.mem, (uint16_t) (2 * i));
        }
}

/* Each may take as long as the host has data to write. */
TEST(a_pause_waits_for_one_request_to_a_disk_and_not_for_all_that_wait) {
        Driver driver;

        make();
        flushes.n = 0;
        driver_prepare(&driver, virtio_blk_pci(devices->disks[1]), &vm.mem, 0x10000, 0);
        offer_flushes(&driver);
        driver_ok(&driver);
        wait_for_flushes(1);
        assert_ok(devices_pause(devices));
        assert_eq(flushes.n, 1);
        devices_resume(devices);
        wait_for_flushes(FLUSHES);
        done();
}

TEST(memory_requests) {
        make();
        assert_ok(devices_request_plugged(devices, MIB(128)));
        assert_eq(devices_request_plugged(devices, MIB(130)), -EINVAL);
        assert_ok(devices_request_balloon(devices, MIB(1)));
        done();
}

TEST(without_a_region_there_is_no_memory_device) {
        DeviceEvents events = {};
        DevicesConfig config = { .guest_cid = 3, .tap_fd = -EBADF };

        fake_vm_init(&vm, MIB(4));
        stepper_init(&stepper);
        assert_ok(devices_new(&vm, stepper.loop, &config, &events, &devices, NULL));
        assert_ok(devices_start(devices));
        assert_eq(get(config_gpa(8, 0), 4), UINT32_MAX);
        assert_eq(devices_request_plugged(devices, 0), -ENODEV);
        assert_ok(devices_request_balloon(devices, 0));
        done();
}
