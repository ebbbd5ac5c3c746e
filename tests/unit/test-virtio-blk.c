/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ring.h>
#include <sys/mman.h>

#include "fake-vm.h"
#include "test.h"
#include "virtio-driver.h"
#include "vmm/virtio-blk.h"

#define BASE_BYTES KIB(64)
#define DISK_BYTES KIB(128)
#define RINGS_GPA 0x10000U
#define HEADER_GPA 0x100000U
#define DATA_GPA 0x110000U
#define STATUS_GPA 0x1f0000U

static Vm vm;
static Stepper stepper;
static VirtioBlk *disk;
static Driver driver;
static int base_fd, overlay_fd;
static unsigned errors;

static void on_error(void *userdata, const char *name, const char *message) {
        errors++;
        printf("# %s: %s\n", name, message);
}

static void make_with(bool read_only, uint64_t disk_bytes) {
        static uint8_t base[BASE_BYTES];

        errors = 0;
        fake_vm_init(&vm, MIB(4));
        stepper_init(&stepper);
        base_fd = memfd_create("base", MFD_CLOEXEC|MFD_ALLOW_SEALING);
        overlay_fd = memfd_create("overlay", MFD_CLOEXEC|MFD_ALLOW_SEALING);
        assert_true(base_fd >= 0 && overlay_fd >= 0);
        for (size_t i = 0; i < sizeof(base); i++)
                base[i] = (uint8_t) (i / 512 + 1);
        assert_eq(write(base_fd, base, sizeof(base)), BASE_BYTES);
        assert_ok(ftruncate(overlay_fd, disk_bytes));

        DiskConfig config = {
                .present = true, .read_only = read_only, .base_fd = dup(base_fd),
                .over.overlay_fd = read_only ? -EBADF : dup(overlay_fd), .base_bytes = BASE_BYTES, .disk_bytes = disk_bytes,
        };
        assert_ok(virtio_blk_new(&vm, 0xc0200000, "vdb", &config, on_error, NULL, &disk, NULL));
        assert_ok(virtio_pci_attach(virtio_blk_pci(disk), stepper.loop));
        driver_prepare(&driver, virtio_blk_pci(disk), &vm.mem, RINGS_GPA, 1ULL << VIRTIO_RING_F_INDIRECT_DESC);
        driver_ok(&driver);
        stepper_run(&stepper, 2);
}

static void make(void) {
        make_with(false, DISK_BYTES);
}

static void done(void) {
        disk = virtio_blk_free(disk);
        base_fd = safe_close(base_fd);
        overlay_fd = safe_close(overlay_fd);
        stepper_done(&stepper);
        fake_vm_done(&vm);
}

/* What the guest sees in the status byte; 0xee: nothing was written. */
static uint8_t run_chain(unsigned head, uint32_t *ret_len) {
        uint8_t status = 0xee;
        uint32_t used_head;

        assert_ok(guest_mem_write(&vm.mem, STATUS_GPA, &status, 1));
        ring_offer(&driver.rings[0], &vm.mem, head);
        driver_kick(&driver, 0);
        for (unsigned i = 0; i < 10; i++) {
                stepper_run(&stepper, 1);
                if (ring_take_used(&driver.rings[0], &vm.mem, &used_head, ret_len)) {
                        assert_eq(used_head, head);
                        assert_ok(guest_mem_read(&vm.mem, STATUS_GPA, &status, 1));
                        return status;
                }
        }
        return 0xff;
}

/* A request in three parts, or two without data. */
static uint8_t request(uint32_t type, uint64_t sector, uint32_t len, uint32_t *ret_len) {
        struct virtio_blk_outhdr h = { .type = htole32(type), .sector = htole64(sector) };
        uint16_t write = type == VIRTIO_BLK_T_OUT ? 0 : VRING_DESC_F_WRITE;

        assert_ok(guest_mem_write(&vm.mem, HEADER_GPA, &h, sizeof(h)));
        ring_desc(&driver.rings[0], &vm.mem, 0, HEADER_GPA, sizeof(h), VRING_DESC_F_NEXT, len > 0 ? 1 : 2);
        ring_desc(&driver.rings[0], &vm.mem, 1, DATA_GPA, len, VRING_DESC_F_NEXT | write, 2);
        ring_desc(&driver.rings[0], &vm.mem, 2, STATUS_GPA, 1, VRING_DESC_F_WRITE, 0);
        return run_chain(0, ret_len);
}

static void fill(uint8_t v, uint32_t len) {
        memset(guest_mem_ptr(&vm.mem, DATA_GPA, len), v, len);
}

static void assert_data(uint8_t v, uint32_t offset, uint32_t len) {
        const uint8_t *p = guest_mem_ptr(&vm.mem, DATA_GPA + offset, len);

        for (uint32_t i = 0; i < len; i++)
                assert_eq(p[i], v);
}

TEST(configuration) {
        make();
        VirtioPci *v = virtio_blk_pci(disk);
        assert_eq(bar_get(v, VIRTIO_BAR_DEVICE, 8), DISK_BYTES / 512);
        assert_eq(bar_get(v, VIRTIO_BAR_DEVICE + 12, 4), 126);
        assert_eq(bar_get(v, VIRTIO_BAR_DEVICE + 20, 4), 512);
        assert_true(v->regs.device_features & 1ULL << VIRTIO_BLK_F_FLUSH);
        assert_true(!(v->regs.device_features & 1ULL << VIRTIO_BLK_F_RO));
        assert_true(!(v->regs.device_features & 1ULL << VIRTIO_BLK_F_DISCARD));
        done();
}

TEST(read_write_flush) {
        uint32_t len;

        make();
        assert_eq(request(VIRTIO_BLK_T_IN, 3, 1024, &len), VIRTIO_BLK_S_OK);
        assert_eq(len, 1025);
        assert_data(4, 0, 512);
        assert_data(5, 512, 512);

        fill(0xaa, 1024);
        assert_eq(request(VIRTIO_BLK_T_OUT, 3, 1024, &len), VIRTIO_BLK_S_OK);
        assert_eq(len, 1);
        assert_eq(request(VIRTIO_BLK_T_FLUSH, 0, 0, &len), VIRTIO_BLK_S_OK);
        fill(0, 2048);
        assert_eq(request(VIRTIO_BLK_T_IN, 2, 2048, &len), VIRTIO_BLK_S_OK);
        assert_data(3, 0, 512);
        assert_data(0xaa, 512, 1024);
        assert_data(6, 1536, 512);

        /* Behind the base. */
        fill(1, 512);
        assert_eq(request(VIRTIO_BLK_T_IN, DISK_BYTES / 512 - 1, 512, &len), VIRTIO_BLK_S_OK);
        assert_data(0, 0, 512);
        done();
}

TEST(identity) {
        char id[21] = {};
        uint32_t len;

        make();
        fill(0xee, 64);
        assert_eq(request(VIRTIO_BLK_T_GET_ID, 0, 20, &len), VIRTIO_BLK_S_OK);
        assert_ok(guest_mem_read(&vm.mem, DATA_GPA, id, 20));
        assert_streq(id, "cube-vdb");
        /* Not more than there is room for, and not more than 20. */
        fill(0xee, 64);
        assert_eq(request(VIRTIO_BLK_T_GET_ID, 0, 3, &len), VIRTIO_BLK_S_OK);
        assert_data(0xee, 3, 10);
        assert_eq(request(VIRTIO_BLK_T_GET_ID, 0, 64, &len), VIRTIO_BLK_S_OK);
        assert_eq(len, 20);
        assert_data(0xee, 20, 44);
        done();
}

TEST(ranges) {
        static const struct { uint64_t sector; uint32_t len; } bad[] = {
                { DISK_BYTES / 512, 512 }, { DISK_BYTES / 512 - 1, 1024 }, { UINT64_MAX, 512 }, { UINT64_MAX / 512, 512 },
                { UINT64_MAX / 512 + 1, 512 }, { 1ULL << 55, 512 }, { 0, 511 }, { 0, 1 }, { 0, 513 },
                { DISK_BYTES / 512 + 1, 512 },
        };
        uint32_t len;

        make();
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                fill(0xee, 2048);
                assert_eq(request(VIRTIO_BLK_T_IN, bad[i].sector, bad[i].len, &len), VIRTIO_BLK_S_IOERR);
                assert_data(0xee, 0, 1024);
                assert_eq(len, 0);
                assert_eq(request(VIRTIO_BLK_T_OUT, bad[i].sector, bad[i].len, &len), VIRTIO_BLK_S_IOERR);
        }
        assert_eq(errors, 0);
        assert_eq(request(VIRTIO_BLK_T_IN, 0, 512, &len), VIRTIO_BLK_S_OK);
        done();
}

TEST(unknown_requests) {
        uint32_t len;

        make();
        assert_eq(request(2, 0, 512, &len), VIRTIO_BLK_S_UNSUPP);
        assert_eq(request(VIRTIO_BLK_T_DISCARD, 0, 16, &len), VIRTIO_BLK_S_UNSUPP);
        assert_eq(request(VIRTIO_BLK_T_WRITE_ZEROES, 0, 16, &len), VIRTIO_BLK_S_UNSUPP);
        assert_eq(request(UINT32_MAX, 0, 512, &len), VIRTIO_BLK_S_UNSUPP);
        done();
}

TEST(read_only_disk) {
        uint32_t len;

        make_with(true, BASE_BYTES);
        assert_true(virtio_blk_pci(disk)->regs.device_features & 1ULL << VIRTIO_BLK_F_RO);
        assert_eq(request(VIRTIO_BLK_T_OUT, 0, 512, &len), VIRTIO_BLK_S_IOERR);
        assert_eq(request(VIRTIO_BLK_T_IN, 7, 512, &len), VIRTIO_BLK_S_OK);
        assert_data(8, 0, 512);
        assert_eq(errors, 0);
        done();
}

TEST(framing_is_free) {
        struct virtio_blk_outhdr h = { .type = htole32(VIRTIO_BLK_T_IN), .sector = htole64(1) };
        uint32_t len;

        make();
        Ring *r = &driver.rings[0];
        assert_ok(guest_mem_write(&vm.mem, HEADER_GPA, &h, sizeof(h)));
        /* Header in three parts; status in the last byte of the data's second part. */
        ring_desc(r, &vm.mem, 0, HEADER_GPA, 1, VRING_DESC_F_NEXT, 1);
        ring_desc(r, &vm.mem, 1, HEADER_GPA + 1, 9, VRING_DESC_F_NEXT, 2);
        ring_desc(r, &vm.mem, 2, HEADER_GPA + 10, 6, VRING_DESC_F_NEXT, 3);
        ring_desc(r, &vm.mem, 3, DATA_GPA, 100, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 4);
        ring_desc(r, &vm.mem, 4, STATUS_GPA - 412, 413, VRING_DESC_F_WRITE, 0);
        assert_eq(run_chain(0, &len), VIRTIO_BLK_S_OK);
        assert_eq(len, 513);
        assert_data(2, 0, 100);
        assert_eq(((uint8_t *) guest_mem_ptr(&vm.mem, STATUS_GPA - 1, 1))[0], 2);

        /* A header that is cut off. */
        ring_desc(r, &vm.mem, 0, HEADER_GPA, 15, VRING_DESC_F_NEXT, 4);
        assert_eq(run_chain(0, &len), VIRTIO_BLK_S_IOERR);
        /* Nothing but a status. */
        ring_desc(r, &vm.mem, 0, STATUS_GPA, 1, VRING_DESC_F_WRITE, 0);
        assert_eq(run_chain(0, &len), VIRTIO_BLK_S_IOERR);
        done();
}

TEST(no_place_for_a_status_stops_the_device) {
        uint32_t len;

        make();
        ring_desc(&driver.rings[0], &vm.mem, 0, HEADER_GPA, 16, 0, 0);
        assert_eq(run_chain(0, &len), 0xff);
        assert_true(driver_status(&driver) & 0x40);
        assert_eq(errors, 1);
        done();
}

TEST(host_errors_become_io_errors) {
        uint32_t len;

        make();
        assert_ok(fcntl(overlay_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 ? -errno : 0);
        for (unsigned i = 0; i < 10; i++)
                assert_eq(request(VIRTIO_BLK_T_OUT, i, 512, &len), VIRTIO_BLK_S_IOERR);
        assert_eq(errors, 1);
        assert_ok(ftruncate(base_fd, 4096));
        assert_eq(request(VIRTIO_BLK_T_IN, 64, 512, &len), VIRTIO_BLK_S_IOERR);
        assert_eq(request(VIRTIO_BLK_T_IN, 0, 512, &len), VIRTIO_BLK_S_OK);
        done();
}

TEST(a_full_ring_is_served_in_visits) {
        struct virtio_blk_outhdr h = { .type = htole32(VIRTIO_BLK_T_IN) };
        struct vring_desc table[3];
        uint32_t head, len;
        unsigned n = 0;

        make();
        Ring *r = &driver.rings[0];
        assert_ok(guest_mem_write(&vm.mem, HEADER_GPA, &h, sizeof(h)));
        table[0] = (struct vring_desc) { .addr = HEADER_GPA, .len = 16, .flags = VRING_DESC_F_NEXT, .next = 1 };
        table[1] = (struct vring_desc) { .addr = DATA_GPA, .len = 512, .flags = VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, .next = 2 };
        table[2] = (struct vring_desc) { .addr = STATUS_GPA, .len = 1, .flags = VRING_DESC_F_WRITE };
        assert_ok(guest_mem_write(&vm.mem, 0x180000, table, sizeof(table)));
        for (unsigned i = 0; i < 128; i++) {
                ring_desc(r, &vm.mem, i, 0x180000, sizeof(table), VRING_DESC_F_INDIRECT, 0);
                ring_offer(r, &vm.mem, i);
        }
        driver_kick(&driver, 0);
        stepper_run(&stepper, 1);
        while (ring_take_used(r, &vm.mem, &head, &len))
                n++;
        assert_eq(n, VIRTIO_VISIT_CHAINS);
        stepper_run(&stepper, 6);
        while (ring_take_used(r, &vm.mem, &head, &len))
                n++;
        assert_eq(n, 128);
        done();
}

TEST(bad_configurations) {
        DiskConfig config = { .present = true, .base_fd = -EBADF, .over.overlay_fd = -EBADF, .disk_bytes = 1024 };

        fake_vm_init(&vm, MIB(4));
        assert_eq(virtio_blk_new(&vm, 0xc0200000, "vda", &config, NULL, NULL, &disk, NULL), -EINVAL);
        config.read_only = true;
        config.disk_bytes = 1000;
        assert_eq(virtio_blk_new(&vm, 0xc0200000, "vda", &config, NULL, NULL, &disk, NULL), -EINVAL);
        fake_vm_done(&vm);
}
